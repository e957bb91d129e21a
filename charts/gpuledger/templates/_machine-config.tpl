{{- /* The DaemonSet of the agents of machine configuration, and their ServiceAccount. */}}
{{- define "gpuledger.configAgent" -}}
machine-config-agent
{{- end }}

{{- /* The folder of the nodes in which it leaves reports for the node's agent to record. */}}
{{- define "gpuledger.configReports" -}}
{{ .Values.machineConfig.stateDirectory }}/reports
{{- end }}

{{- define "gpuledger.configAgentRules" -}}
# Its own node; no rule of RBAC can say so, so the policy machine-config-annotations does.
- apiGroups: [""]
  resources: [nodes]
  verbs: [list, watch, patch]
- apiGroups: [mco.in-cloud.io]
  resources: [renderedmachineconfigs]
  verbs: [get]
{{- end }}

{{- define "gpuledger.configAgentEnv" -}}
{{- with .Values.machineConfig -}}
- name: HOME
  value: /tmp
- name: MALLOC_ARENA_MAX
  value: "2"
- name: NODE_NAME
  valueFrom:
    fieldRef: {fieldPath: spec.nodeName}
- name: GPULEDGER_HOST_ROOT
  value: /host
- name: GPULEDGER_CONFIG_STATE_DIR
  value: {{ printf "/host%s" .stateDirectory | quote }}
- name: GPULEDGER_CONFIG_FACTS_DIR
  value: {{ printf "/host%s" (include "gpuledger.configReports" $) | quote }}
# systemctl runs in the root of the node, and would take that for an image that nothing has booted.
- name: SYSTEMD_IGNORE_CHROOT
  value: "1"
- name: GPULEDGER_METRICS_LISTEN
  value: {{ printf "0.0.0.0:%d" (int .port) | quote }}
{{- with .extraEnv }}
{{ toYaml . }}
{{- end }}
{{- end }}
{{- end }}

{{- /*
Tolerations of the services, which drain nodes and give them back: they start on a node that is cordoned, not ready or unreachable
when there is no other one. A node that stays so loses them after the time that Kubernetes gives every pod, so that they come up
elsewhere.
*/}}
{{- define "gpuledger.serviceTolerations" -}}
{{- range list "unschedulable" "not-ready" "unreachable" }}
- {key: node.kubernetes.io/{{ . }}, operator: Exists, effect: NoSchedule}
{{- end }}
{{- range list "not-ready" "unreachable" }}
- {key: node.kubernetes.io/{{ . }}, operator: Exists, effect: NoExecute, tolerationSeconds: 300}
{{- end }}
{{- end }}

{{- /* The annotations of Nodes, as lists of CEL: what gpuledger writes, and what the node's agent does. */}}
{{- define "gpuledger.desiredAnnotations" -}}
{{- $names := list "pool" "desired-revision" "desired-revision-set-at" "cordoned" "drain-started-at" "drain-retry-count" }}
{{- include "gpuledger.annotationNames" $names }}
{{- end }}

{{- define "gpuledger.observedAnnotations" -}}
{{- include "gpuledger.annotationNames" (list "current-revision" "agent-state" "last-error" "reboot-pending") }}
{{- end }}

{{- define "gpuledger.annotationNames" -}}
{{- $quoted := list }}
{{- range . }}
{{- $quoted = append $quoted (printf "'mco.in-cloud.io/%s'" .) }}
{{- end -}}
[{{ join ", " $quoted }}]
{{- end }}
