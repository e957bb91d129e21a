{{/* The names of objects, which never exceed 63 characters, including suffixes of up to 14. */}}
{{- define "gpuledger.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 49 | trimSuffix "-" }}
{{- end }}

{{- define "gpuledger.fullname" -}}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride | trunc 49 | trimSuffix "-" }}
{{- else }}
{{- $name := include "gpuledger.name" . }}
{{- $full := ternary .Release.Name (printf "%s-%s" .Release.Name $name) (contains $name .Release.Name) }}
{{- $full | trunc 49 | trimSuffix "-" }}
{{- end }}
{{- end }}

{{/* The labels of every object. Call with (list $ "component"). */}}
{{- define "gpuledger.labels" -}}
{{- $root := index . 0 -}}
helm.sh/chart: {{ printf "%s-%s" $root.Chart.Name $root.Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
app.kubernetes.io/version: {{ $root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ $root.Release.Service }}
app.kubernetes.io/part-of: gpuledger
{{ include "gpuledger.selector" . }}
{{- end }}

{{/* The labels that select a component's pods; they can never change. */}}
{{- define "gpuledger.selector" -}}
{{- $root := index . 0 -}}
app.kubernetes.io/name: {{ include "gpuledger.name" $root }}
app.kubernetes.io/instance: {{ $root.Release.Name }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end }}

{{/* Marks an object as a hook that runs before an install and an upgrade. Call with its weight. */}}
{{- define "gpuledger.hook" -}}
helm.sh/hook: pre-install,pre-upgrade
helm.sh/hook-weight: {{ . | quote }}
helm.sh/hook-delete-policy: before-hook-creation,hook-succeeded
{{- end }}

{{- define "gpuledger.image" -}}
{{- $hint := "image.repository is required: build the image from the Dockerfile, push it where your nodes can pull it, and name it." }}
{{- $repository := required $hint .Values.image.repository }}
{{- if .Values.image.digest }}
{{- printf "%s@%s" $repository .Values.image.digest }}
{{- else }}
{{- printf "%s:%s" $repository (.Values.image.tag | default .Chart.AppVersion) }}
{{- end }}
{{- end }}

{{/* Refuses values that are incomplete, or contradictory, about the servers. */}}
{{- define "gpuledger.checkServers" -}}
{{- with .Values.servers }}
{{- if and .existingSecret (or .natsUrl .databaseUrl) }}
{{- fail "servers.existingSecret and URLs are both given. Give the name of a Secret, or servers.natsUrl and servers.databaseUrl." }}
{{- end }}
{{- if not .existingSecret }}
{{- $hint := "is required: name a Secret that holds both URLs in servers.existingSecret, or give servers.natsUrl and servers.databaseUrl." }}
{{- $_ := required (printf "servers.natsUrl %s" $hint) .natsUrl }}
{{- $_ := required (printf "servers.databaseUrl %s" $hint) .databaseUrl }}
{{- end }}
{{- end }}
{{- end }}

{{/* The data of the chart's own Secret. */}}
{{- define "gpuledger.secretData" -}}
{{ .Values.servers.natsUrlKey }}: {{ .Values.servers.natsUrl | quote }}
{{ .Values.servers.databaseUrlKey }}: {{ .Values.servers.databaseUrl | quote }}
{{- end }}

{{/* The variables that name the servers. Call with (list $ "name of the Secret"). */}}
{{- define "gpuledger.serverEnv" -}}
{{- $servers := (index . 0).Values.servers -}}
- name: NATS_URL
  valueFrom:
    secretKeyRef: {name: {{ index . 1 }}, key: {{ $servers.natsUrlKey }}}
- name: DATABASE_URL
  valueFrom:
    secretKeyRef: {name: {{ index . 1 }}, key: {{ $servers.databaseUrlKey }}}
{{- end }}
