{{/*
The StatefulSet of a server that the release brings, with its data. Call with a dict:
  root      the chart's top-level context
  part      nats or postgres
  values    the server's values
  args      the arguments of gpuledger
  grace     how many seconds it may take to end
  container the container's ports and probes, as text
  account   the pods' ServiceAccount, if they need one
  labels    additional labels of the pods, as text
  env       additional environment variables, as text
  mounts    additional mounts, as text
  volumes   additional volumes, as text
*/}}
{{- define "gpuledger.serverSet" -}}
{{- $root := .root -}}
{{- $name := printf "%s-%s" (include "gpuledger.fullname" $root) .part -}}
apiVersion: apps/v1
kind: StatefulSet
metadata:
  name: {{ $name }}
  namespace: {{ $root.Release.Namespace }}
  labels:
    {{- include "gpuledger.labels" (list $root .part) | nindent 4 }}
spec:
  replicas: {{ .values.replicas }}
  serviceName: {{ $name }}{{ if or (eq .part "nats") (gt (int .values.replicas) 1) }}-peers{{ end }}
  # A server of a cluster is ready only with others.
  podManagementPolicy: Parallel
  selector:
    matchLabels:
      {{- include "gpuledger.selector" (list $root .part) | nindent 6 }}
  template:
    {{- include "gpuledger.podTemplate" (dict
      "root" $root
      "component" .part
      "account" .account
      "labels" .labels
      "env" .env
      "args" .args
      "resources" .values.resources
      "container" .container
      "pod" (printf "terminationGracePeriodSeconds: %v" .grace)
      "affinity" (include "gpuledger.apart" (list $root .part))
      "mounts" (include "gpuledger.serverMounts" .)
      "volumes" (include "gpuledger.serverVolumes" (merge (dict "name" $name) .))
    ) | nindent 4 }}
  {{- if .values.persistence.enabled }}
  volumeClaimTemplates:
    - metadata:
        name: data
        labels:
          {{- include "gpuledger.selector" (list $root .part) | nindent 10 }}
      spec:
        accessModes: [ReadWriteOnce]
        {{- with .values.persistence.storageClass }}
        storageClassName: {{ . | quote }}
        {{- end }}
        resources:
          requests:
            storage: {{ .values.persistence.size }}
  {{- end }}
{{- end }}

{{- define "gpuledger.apart" -}}
podAntiAffinity:
  preferredDuringSchedulingIgnoredDuringExecution:
    - weight: 100
      podAffinityTerm:
        topologyKey: kubernetes.io/hostname
        labelSelector:
          matchLabels:
            {{- include "gpuledger.selector" . | nindent 12 }}
{{- end }}

{{- define "gpuledger.serverMounts" -}}
- name: data
  mountPath: /data
- name: secret
  mountPath: /etc/gpuledger/server
  readOnly: true
{{- with .mounts }}
{{ . }}
{{- end }}
{{- end }}

{{- define "gpuledger.serverVolumes" -}}
- name: secret
  secret: {secretName: {{ .name }}, defaultMode: 0440}
{{- if not .values.persistence.enabled }}
- name: data
  emptyDir: {}
{{- end }}
{{- with .volumes }}
{{ . }}
{{- end }}
{{- end }}

{{/* A Service of a server that the release brings. Call with a dict: root, part, name, peers, ports, selector. */}}
{{- define "gpuledger.serverService" -}}
apiVersion: v1
kind: Service
metadata:
  name: {{ .name }}
  namespace: {{ .root.Release.Namespace }}
  labels:
    {{- include "gpuledger.labels" (list .root .part) | nindent 4 }}
spec:
  {{- if .peers }}
  # Servers of a cluster find each other before they are ready.
  clusterIP: None
  publishNotReadyAddresses: true
  {{- end }}
  selector:
    {{- include "gpuledger.selector" (list .root .part) | nindent 4 }}
    {{- with .selector }}
    {{- . | nindent 4 }}
    {{- end }}
  ports:
    {{- range $name, $port := .ports }}
    - {name: {{ $name }}, port: {{ $port }}, targetPort: {{ $name }}}
    {{- end }}
{{- end }}
