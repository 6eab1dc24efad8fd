{{/* Labels of every object. Names are fixed: there is one service proxy in a cluster. */}}
{{- define "portolan.labels" -}}
app.kubernetes.io/name: portolan
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end }}

{{/* What pods of a component are selected by; it never changes. */}}
{{- define "portolan.selector" -}}
app.kubernetes.io/name: portolan
app.kubernetes.io/component: {{ .component }}
{{- end }}

{{/* The image of a component: its own in full, or the one in the repository. */}}
{{- define "portolan.image" -}}
{{- with .own }}{{ . }}{{ else -}}
{{- $missing := "image.repository is required, there is no default registry: make both images with `cargo lab image`, push them and give --set image.repository=REGISTRY/PATH (images REGISTRY/PATH/portolan-controller and REGISTRY/PATH/portolan-agent)" -}}
{{- $repository := required $missing .root.Values.image.repository -}}
{{- printf "%s/portolan-%s:%s" (trimSuffix "/" $repository) .component (.root.Values.image.tag | default .root.Chart.AppVersion) -}}
{{- end -}}
{{- end }}

{{- define "portolan.apiServer" -}}
{{- $missing := "apiServer.host is required: the address of the API server itself, like --set apiServer.host=10.0.0.5; its Service works only once Portolan serves it. `kubectl config view --minify -o jsonpath='{.clusters[0].cluster.server}'` shows the one that you use" -}}
{{- $host := required $missing .Values.apiServer.host -}}
{{- if and (contains ":" $host) (not (hasPrefix "[" $host)) }}{{ $host = printf "[%s]" $host }}{{ end -}}
{{- printf "https://%s:%d" $host (int .Values.apiServer.port) -}}
{{- end }}

{{- define "portolan.pullSecrets" -}}
{{- with .Values.image.pullSecrets }}
imagePullSecrets:
{{- range . }}
- name: {{ . }}
{{- end }}
{{- end }}
{{- end }}

{{/* Whether the controller makes its own certificate. */}}
{{- define "portolan.ownCertificate" -}}
{{- with .Values.tls }}
{{- if and .certificateSecret (not .caConfigMap) }}
{{- fail "tls.certificateSecret without tls.caConfigMap: agents need to know whom to believe; name a ConfigMap with ca.crt" }}
{{- else if and .caConfigMap (not .certificateSecret) }}
{{- fail "tls.caConfigMap without tls.certificateSecret: name the Secret with the certificate, or leave both out" }}
{{- end }}
{{- if not .certificateSecret }}true{{ end }}
{{- end }}
{{- end }}

{{/* The spec of the ProxyConfig: what was given, and the network's preset where nothing was. */}}
{{- define "portolan.configSpec" -}}
{{- $presets := dict
  "node-cidr" (dict "mode" "NodeCIDR")
  "flannel" (dict "mode" "NodeCIDR")
  "kubenet" (dict "mode" "NodeCIDR")
  "kindnet" (dict "mode" "NodeCIDR")
  "calico" (dict "mode" "InterfaceNamePrefix" "prefix" "cali")
  "cilium" (dict "mode" "InterfaceNamePrefix" "prefix" "lxc")
  "aws-vpc" (dict "mode" "InterfaceNamePrefix" "prefix" "eni") }}
{{- $spec := deepCopy .Values.config.spec }}
{{- $settings := $spec.settings | default dict }}
{{- if and (eq .Values.cni "custom") (not (hasKey $settings "localDetection")) }}
{{- fail "cni is custom: say how pods are told from others, in config.spec.settings.localDetection (`kubectl explain proxyconfig.spec.settings.localDetection`)" }}
{{- end }}
{{- if and (hasKey $presets .Values.cni) (not (hasKey $settings "localDetection")) }}
{{- $settings = set $settings "localDetection" (get $presets .Values.cni) }}
{{- end }}
{{- if $settings }}{{ $spec = set $spec "settings" $settings }}{{ end }}
{{- toYaml $spec }}
{{- end }}

{{/* PodMonitors for addresses that nobody reaches would only be alerts. What is unknown is let through. */}}
{{- define "portolan.canBeScraped" -}}
{{- if eq .Values.controller.adminAddress "127.0.0.1" }}
{{- fail "monitoring.podMonitors: no Prometheus reaches controllers at 127.0.0.1; set controller.adminAddress=0.0.0.0 (or [::]) and keep others away from controller.adminPort" }}
{{- end }}
{{- if not .Values.agents.metricsPort }}
{{- fail "monitoring.podMonitors: agents.metricsPort is 0; it has to be the port in config.spec.settings.metrics" }}
{{- end }}
{{- if .Values.config.create }}
{{- $metrics := dig "settings" "metrics" (dict) .Values.config.spec }}
{{- $address := get $metrics "bindAddress" | default "127.0.0.1" }}
{{- if or (hasPrefix "127." $address) (eq $address "::1") }}
{{- fail "monitoring.podMonitors: no Prometheus reaches agents at a loopback address; set config.spec.settings.metrics.bindAddress=0.0.0.0 and keep others away from agents.metricsPort" }}
{{- end }}
{{- $port := ternary $metrics.port 10249 (hasKey $metrics "port") }}
{{- if ne (int $port) (int .Values.agents.metricsPort) }}
{{- fail (printf "monitoring.podMonitors: agents listen at port %d by config.spec.settings.metrics.port, and agents.metricsPort is %d" (int $port) (int .Values.agents.metricsPort)) }}
{{- end }}
{{- end }}
{{- end }}
