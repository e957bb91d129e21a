{{/*
A ServiceAccount with a ClusterRole of its own, for a job. Call with a dict:
  root        the chart's top-level context
  component   the component's name
  name        the name of all three
  rules       the ClusterRole's rules, as text
  hook        annotations of the hook, as text; all three exist only while it runs
*/}}
{{- define "gpuledger.account" -}}
{{- $metadata := include "gpuledger.accountMetadata" . -}}
apiVersion: v1
kind: ServiceAccount
metadata:
  namespace: {{ .root.Release.Namespace }}
  {{- $metadata | nindent 2 }}
automountServiceAccountToken: false
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata:
  {{- $metadata | nindent 2 }}
rules:
  {{- .rules | nindent 2 }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata:
  {{- $metadata | nindent 2 }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: ClusterRole
  name: {{ .name }}
subjects:
  - kind: ServiceAccount
    name: {{ .name }}
    namespace: {{ .root.Release.Namespace }}
{{- end }}

{{- define "gpuledger.accountMetadata" -}}
name: {{ .name }}
labels:
  {{- include "gpuledger.labels" (list .root .component) | nindent 2 }}
{{- if .hook }}
annotations:
  {{- .hook | nindent 2 }}
{{- end }}
{{- end }}
