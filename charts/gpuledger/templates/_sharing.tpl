{{- /* The names of shared devices, as environment variables: every process of an installation has the same. */}}
{{- define "gpuledger.sharingDomainEnv" -}}
- name: GPULEDGER_SHARING_DOMAIN
  value: {{ .Values.sharing.domain | quote }}
{{- end }}

{{- /* The API group of what nodes share. */}}
{{- define "gpuledger.sharingGroup" -}}
scheduling.{{ .Values.sharing.domain }}
{{- end }}

{{- define "gpuledger.sharingEnv" -}}
{{ include "gpuledger.sharingDomainEnv" . }}
- name: GPULEDGER_SHARING_SCHEDULER
  value: {{ .Values.sharing.schedulerName | quote }}
- name: GPULEDGER_SHARING_ACCOUNT
  value: {{ printf "system:serviceaccount:%s:%s" .Release.Namespace (include "gpuledger.sharingAccount" .) | quote }}
{{- end }}

{{- /* The ServiceAccount that writes which devices a pod has: nobody else may. */}}
{{- define "gpuledger.sharingAccount" -}}
{{- printf "%s%s" (include "gpuledger.fullname" .) (ternary "-extender" "" .Values.sharing.extender.enabled) }}
{{- end }}
