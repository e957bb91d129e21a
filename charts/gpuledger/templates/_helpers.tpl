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

{{/*
Refuses values without the defaults of what an earlier chart did not have. The first template that helm renders calls it,
because any other one ends with a nil pointer.
*/}}
{{- define "gpuledger.checkDefaults" -}}
{{- $values := .Values -}}
{{- range list "admission" "agent" "components" "dashboards" "logProof" "presets" "progressDeadlineSeconds" "prometheusRule" "restrictedAccess" "settings" }}
{{- if not (hasKey $values .) }}
{{- fail (printf "the values lack the defaults of %s, because they are those of an earlier chart (--reuse-values). Upgrade with --reset-then-reuse-values." .) }}
{{- end }}
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

{{/*
How a pod logs in to NATS, as JSON: credentialsSecret, credentialsKey, tlsSecret, clientCertificate. Call with
(list $ "component"); `migrate` is the operator, `log-proof` a reader, all others are the services.
*/}}
{{- define "gpuledger.natsLogin" -}}
{{- $servers := (index . 0).Values.servers -}}
{{- $login := $servers.nats -}}
{{- with get (dict "migrate" "operator" "log-proof" "reader") (index . 1) }}
{{- $own := get $servers . }}
{{- $given := dict "clientCertificate" $login.clientCertificate }}
{{- $key := ternary $own.credentialsKey $login.credentialsKey (not (empty $own.credentialsSecret)) }}
{{- $_ := set $given "credentialsKey" $key }}
{{- range list "credentialsSecret" "tlsSecret" }}
{{- $_ := set $given . (get $own . | default (get $servers.nats .)) }}
{{- end }}
{{- $login = $given }}
{{- end }}
{{- toJson $login }}
{{- end }}

{{/* The variables that name the files of a login. Call with the login. */}}
{{- define "gpuledger.natsEnv" -}}
{{- if .credentialsSecret }}
- name: GPULEDGER_NATS_CREDENTIALS
  value: /etc/gpuledger/nats/nats.creds
{{- end }}
{{- if .tlsSecret }}
- name: GPULEDGER_NATS_CA
  value: /etc/gpuledger/nats-tls/ca.crt
{{- if .clientCertificate }}
- name: GPULEDGER_NATS_CERTIFICATE
  value: /etc/gpuledger/nats-tls/tls.crt
- name: GPULEDGER_NATS_KEY
  value: /etc/gpuledger/nats-tls/tls.key
{{- end }}
{{- end }}
{{- end }}

{{- define "gpuledger.replicasEnv" -}}
{{- with .Values.servers.nats.replicas -}}
- name: GPULEDGER_NATS_REPLICAS
  value: {{ . | quote }}
{{- end }}
{{- end }}

{{/* Whole folders, because the kubelet renews no file that is mounted by itself. */}}
{{- define "gpuledger.natsMounts" -}}
{{- if .credentialsSecret }}
- name: nats
  mountPath: /etc/gpuledger/nats
  readOnly: true
{{- end }}
{{- if .tlsSecret }}
- name: nats-tls
  mountPath: /etc/gpuledger/nats-tls
  readOnly: true
{{- end }}
{{- end }}

{{- define "gpuledger.natsVolumes" -}}
{{- if .credentialsSecret }}
- name: nats
  secret:
    secretName: {{ .credentialsSecret }}
    items: [{key: {{ .credentialsKey }}, path: nats.creds}]
{{- end }}
{{- if .tlsSecret }}
- name: nats-tls
  secret: {secretName: {{ .tlsSecret }}}
{{- end }}
{{- end }}

{{/* How a pod verifies PostgreSQL. libpq reads these variables where the URL does not say it. Call with $. */}}
{{- define "gpuledger.databaseTlsEnv" -}}
{{- $database := .Values.servers.database -}}
{{- with $database.sslMode | default (ternary "verify-full" "" (not (empty $database.tlsSecret))) }}
- name: PGSSLMODE
  value: {{ . }}
{{- end }}
{{- if $database.tlsSecret }}
- name: PGSSLROOTCERT
  value: /etc/gpuledger/postgres-tls/ca.crt
{{- if $database.clientCertificate }}
- name: PGSSLCERT
  value: /etc/gpuledger/postgres-tls/tls.crt
- name: PGSSLKEY
  value: /etc/gpuledger/postgres-tls/tls.key
{{- end }}
{{- end }}
{{- end }}

{{- define "gpuledger.databaseTlsMounts" -}}
{{- if .Values.servers.database.tlsSecret }}
- name: postgres-tls
  mountPath: /etc/gpuledger/postgres-tls
  readOnly: true
{{- end }}
{{- end }}

{{/* libpq refuses a key that others may read; the pod's group may. */}}
{{- define "gpuledger.databaseTlsVolumes" -}}
{{- with .Values.servers.database.tlsSecret }}
- name: postgres-tls
  secret: {secretName: {{ . }}, defaultMode: 0440}
{{- end }}
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
