{{/* Shared by the presets: how their objects are labelled, and which lists they refuse. */}}
{{- define "gpuledger.presetMetadata" -}}
{{- $root := index . 0 -}}
{{- $object := index . 1 -}}
name: {{ $object.name }}
{{- with $object.namespace }}
namespace: {{ . }}
{{- end }}
labels:
  {{- include "gpuledger.labels" (list $root "presets") | nindent 2 }}
{{- end }}

{{/* The target of an autoscaler. Call with a workload. */}}
{{- define "gpuledger.presetTarget" -}}
apiVersion: {{ .apiVersion | default "apps/v1" }}
kind: {{ .kind | default "Deployment" }}
name: {{ .name }}
{{- end }}

{{/* Refuses a list that names one thing twice. Call with (list "where" (list of names) "what to do"). */}}
{{- define "gpuledger.presetOnce" -}}
{{- $seen := dict }}
{{- range $name := index . 1 }}
{{- if hasKey $seen $name }}
{{- fail (printf "%s names %s twice. %s" (index $ 0) $name (index $ 2)) }}
{{- end }}
{{- $_ := set $seen $name true }}
{{- end }}
{{- end }}
