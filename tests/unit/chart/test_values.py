"""The Helm chart: what real helm makes of values, and what it says to wrong ones. Nothing is installed here."""

from typing import Any

import pytest

from gpuledger.api.kinds import (
    CA_SECRET,
    CONTROLLER_TLS_SECRET,
    LEDGER_CONFIG_MAP,
    LEDGER_CONFIG_MAP_NAMESPACE,
    MODULE_CONFIG,
    NFD_COVERAGE,
    NODE_FEATURE_RULE,
    PREFLIGHT_TLS_SECRET,
)
from gpuledger.api.labels import COMPONENT_BY_APP
from gpuledger.edge.admission.settings import SERVICE
from gpuledger.edge.admission.webhook_configuration import NAME as WEBHOOKS
from gpuledger.edge.kube import crds
from gpuledger.edge.kube.crds import component_daemon_sets
from gpuledger.edge.preflight.webhook_configuration import NAME as PREFLIGHT
from gpuledger.edge.watchers.api_discovery import CLUSTER_NAMESPACE
from gpuledger.runtime.settings import (
    COMPONENT_NAMES,
    ComponentSettings,
    read_components,
)
from support.chart import (
    CHART,
    DATABASE,
    IMAGE,
    KUBE_VERSION,
    NAME,
    NAMESPACE,
    NATS,
    RELEASE,
    ROLES_OF_PEOPLE,
    WITH_LOGINS,
    WITH_SECRET,
    WITH_URLS,
    WITHOUT_ADMISSION,
    Manifests,
    Object,
    helm,
    is_hook,
    needs_helm,
    render,
    standby,
    template,
)

MANY = {
    "podAnnotations": {"a": "b"}, "nodeSelector": {"disk": "ssd"}, "tolerations": [{"operator": "Exists"}],
    "priorityClassName": "system-cluster-critical", "extraEnv": [{"name": "TZ", "value": "UTC"}],
    "affinity": {"nodeAffinity": {}}, "imagePullSecrets": [{"name": "pull"}],
    "extraVolumes": [{"name": "ca", "configMap": {"name": "ca"}}],
    "extraVolumeMounts": [{"name": "ca", "mountPath": "/ca"}],
}  # fmt: skip
CASES: dict[str, dict[str, Any]] = {
    "secret": WITH_SECRET,
    "urls": WITH_URLS,
    "one-replica": {**WITH_SECRET, "replicas": 1},
    "one-shot-coverage": {**WITH_URLS, "nfdCoverage": {"enabled": True}},
    "scheduled-coverage": {**WITH_SECRET, "nfdCoverage": {"enabled": True, "schedule": "17 * * * *"}},
    "service-monitor": {**WITH_SECRET, "serviceMonitor": {"enabled": True, "labels": {"release": "prom"}}},
    "exporter-of-others": {**WITH_SECRET, "serviceMonitor": {"enabled": True, "dcgmExporter": False}},
    "dashboards": {**WITH_SECRET, "dashboards": {"enabled": True, "annotations": {"folder": "GPUs"}}},
    "rules": {**WITH_SECRET, "prometheusRule": {"enabled": True, "labels": {"release": "prom"}}},
    "components-of-others": {
        **WITH_SECRET,
        "replicas": 1,
        "components": {"manage": False, "namespace": "gpu-operator"},
    },
    "no-admission": WITHOUT_ADMISSION,
    "logins": WITH_LOGINS,
    "log-proof": {**WITH_LOGINS, "logProof": {"enabled": True}},
    "log-archive": {
        **WITH_LOGINS,
        "logArchive": {"enabled": True, "location": "s3://fleet/log", "close": "month,9GiB"},
    },
    "many": {**WITH_SECRET, **MANY, "nfdCoverage": {"enabled": True, "schedule": "@daily"}},
}
COMPONENTS = {app for app, component in COMPONENT_BY_APP.items() if component in COMPONENT_NAMES}
ALWAYS = {
    "ClusterRole", "ClusterRoleBinding", "CronJob", "Deployment", "Job", "PodDisruptionBudget", "Role", "RoleBinding",
    "Service", "ServiceAccount", "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding",
}  # fmt: skip
POLICIES = {"gpu-control-plane-restricted-access", "gpu-control-plane-automatic-approval"}
RESTRICTED_ACCESS_KINDS = {"ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"}

LOG_JOBS = {
    "gpu-log-proof": ["verify", "--log"],
    "gpu-log-archive": ["log", "archive", "close", "s3://fleet/log", "--when", "month,9GiB", "--yes"],
}
HOOKS = {f"{NAME}-{job}" for job in ("crds", "unhook", "uninstall")}
"""The jobs with an account that is there only while they run."""

JOB_SUFFIXES = ("migrate", "crds", "unhook", "uninstall")

pytestmark = needs_helm


@pytest.fixture(params=CASES, ids=str)
def made(request: pytest.FixtureRequest) -> Manifests:
    return render(CASES[request.param])


@pytest.mark.parametrize("case", CASES)
def test_lint_finds_nothing(case: str) -> None:
    result = helm("lint", "--strict", str(CHART), "--kube-version", KUBE_VERSION, values=CASES[case])
    assert result.code == 0, result
    assert "WARNING" not in result.out


@pytest.mark.parametrize(
    ("case", "more", "less"),
    [
        ("secret", set(), set()),
        ("urls", {"Secret"}, set()),
        ("one-replica", set(), set()),
        ("rules", {"PrometheusRule"}, set()),
        ("components-of-others", set(), set()),
        ("no-admission", set(), RESTRICTED_ACCESS_KINDS),
        ("one-shot-coverage", {"Secret"}, set()),
        ("scheduled-coverage", set(), set()),
        ("log-proof", set(), set()),
        ("log-archive", set(), set()),
        ("service-monitor", {"ServiceMonitor", "PodMonitor"}, set()),
        ("exporter-of-others", {"ServiceMonitor"}, set()),
        ("dashboards", {"ConfigMap"}, set()),
    ],
)
def test_which_kinds_there_are(case: str, more: set[str], less: set[str]) -> None:
    made = render(CASES[case])
    assert made.kinds() == ALWAYS - less | more
    is_once = case == "one-shot-coverage"
    always = {f"{NAME}-{job}" for job in JOB_SUFFIXES}
    assert made.names("Job") == always | ({NFD_COVERAGE} if is_once else set())


def test_what_pods_run(made: Manifests) -> None:
    ran = {one["metadata"]["name"]: template["spec"]["containers"][0]["args"] for one, template in made.templates()}
    coverage = {NFD_COVERAGE: ["nfd", "coverage"]} if NFD_COVERAGE in ran else {}
    assert ran == {
        standby(made)["metadata"]["name"]: ["nfd", "coverage"],
        NAME: ["up", "--listen", "0.0.0.0:8080"],
        f"{NAME}-migrate": ["migrate"],
        f"{NAME}-crds": ["crds", "install"],
        f"{NAME}-unhook": ["admission", "remove", "--only", "admission"],
        f"{NAME}-uninstall": ["uninstall", "--namespace", NAMESPACE],
        **coverage,
        **{name: arguments for name, arguments in LOG_JOBS.items() if name in ran},
    }


def test_pods_are_confined(made: Manifests) -> None:
    for one, pod in made.templates():
        name, (container,) = one["metadata"]["name"], pod["spec"]["containers"]
        assert pod["spec"]["securityContext"]["runAsNonRoot"] is True, name
        assert pod["spec"]["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}, name
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]},
        }, name  # fmt: skip
        assert container["resources"]["requests"], name
        assert container["resources"]["limits"]["memory"], name
        has_account = "serviceAccountName" in pod["spec"]
        assert pod["spec"]["automountServiceAccountToken"] is has_account, name
        works_with_cluster = name not in LOG_JOBS and not name.endswith("-migrate")
        assert has_account is works_with_cluster, name


def test_settings_of_pods_reach_every_pod() -> None:
    for _, pod in render(CASES["many"]).templates():
        spec, (container,) = pod["spec"], pod["spec"]["containers"]
        assert pod["metadata"]["annotations"]["a"] == "b"
        for key in ("nodeSelector", "priorityClassName", "affinity", "imagePullSecrets"):
            assert spec[key] == MANY[key]
        assert spec["tolerations"][:1] == MANY["tolerations"]
        assert {"name": "TZ", "value": "UTC"} in container["env"]
        assert {"name": "ca", "mountPath": "/ca"} in container["volumeMounts"]
        assert {"name": "ca", "configMap": {"name": "ca"}} in spec["volumes"]


def test_a_stopped_projection_makes_a_pod_unready_and_restarts_none() -> None:
    (container,) = render(WITH_SECRET).one("Deployment")["spec"]["template"]["spec"]["containers"]
    paths = {name: container[f"{name}Probe"]["httpGet"]["path"] for name in ("startup", "liveness", "readiness")}
    assert paths == {"startup": "/metrics", "liveness": "/metrics", "readiness": "/healthz"}
    assert {"name": "http", "containerPort": 8080} in container["ports"]


def test_an_upgrade_keeps_the_old_pods_until_a_new_one_has_built_what_it_needs() -> None:
    spec = render({**WITH_SECRET, "progressDeadlineSeconds": 7200}).one("Deployment")["spec"]
    assert spec["strategy"] == {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}
    assert spec["progressDeadlineSeconds"] == 7200
    assert render(WITH_SECRET).one("Deployment")["spec"]["progressDeadlineSeconds"] == 43200


@pytest.mark.parametrize("case", ["secret", "urls", "one-shot-coverage"])
def test_the_servers_come_from_a_secret_that_is_there_in_time(case: str) -> None:
    made, given = render(CASES[case]), case == "secret"
    for one, pod in made.templates():
        if one["metadata"]["name"] not in (NAME, f"{NAME}-migrate"):
            assert _references(pod) == {}
            continue
        references = _references(pod)
        assert set(references) == {"NATS_URL", "DATABASE_URL"}
        for variable, (secret, key) in references.items():
            if given:
                assert (secret, key) == ("given", variable)
                continue
            kept = made.one("Secret", secret)
            assert kept["stringData"][key] == {"NATS_URL": NATS, "DATABASE_URL": DATABASE}[variable]
            assert is_hook(kept) is is_hook(one)
            assert _weight(kept) <= _weight(one)
    assert ("Secret" in made.kinds()) is not given


def _references(pod: Object) -> dict[str, tuple[str, str]]:
    env = pod["spec"]["containers"][0]["env"]
    named = {one["name"]: one["valueFrom"]["secretKeyRef"] for one in env if "secretKeyRef" in one.get("valueFrom", {})}
    return {name: (found["name"], found["key"]) for name, found in named.items()}


def _weight(obj: Object) -> int:
    return int((obj["metadata"].get("annotations") or {}).get("helm.sh/hook-weight", 0))


def test_other_urls_restart_the_pods() -> None:
    def checksum(url: str) -> str:
        values = {**IMAGE, "servers": {"natsUrl": NATS, "databaseUrl": url}}
        annotations = render(values).one("Deployment")["spec"]["template"]["metadata"]["annotations"]
        return str(annotations["checksum/servers"])

    assert checksum(DATABASE) == checksum(DATABASE) != checksum(f"{DATABASE}2")


def test_every_account_is_bound_to_roles_that_are_there(made: Manifests) -> None:
    for one, pod in made.templates():
        account = pod["spec"].get("serviceAccountName")
        if account is None:
            continue
        kept = made.one("ServiceAccount", account)
        assert is_hook(kept) is (is_hook(one) and account in HOOKS)
        binding = made.one("ClusterRoleBinding", account)
        assert made.one("ClusterRole", binding["roleRef"]["name"])["rules"]
        assert binding["subjects"] == [{"kind": "ServiceAccount", "name": account, "namespace": NAMESPACE}]
        assert all(_weight(before) <= _weight(one) for before in (kept, binding))
    for verbs in (rule["verbs"] for one in made.objects for rule in one.get("rules") or ()):
        assert "*" not in verbs


def test_roles_name_what_the_code_names() -> None:
    made = render(CASES["scheduled-coverage"])
    assert made.names("PodDisruptionBudget") == {NAME, *COMPONENTS}
    names = {name for one in made.objects for rule in one.get("rules") or () for name in rule.get("resourceNames", ())}
    kinds = {crd["metadata"]["name"] for crd in crds.shipped()}
    ours = {WEBHOOKS, PREFLIGHT, CA_SECRET, CONTROLLER_TLS_SECRET, PREFLIGHT_TLS_SECRET, LEDGER_CONFIG_MAP}
    assert names == kinds | ours | {CLUSTER_NAMESPACE, NODE_FEATURE_RULE, MODULE_CONFIG, NAME, *COMPONENTS}
    assert made.one("Role", f"{NAME}-components")["metadata"]["namespace"] == NAMESPACE
    assert made.one("Role", f"{NAME}-ledger")["metadata"]["namespace"] == LEDGER_CONFIG_MAP_NAMESPACE


def test_the_services_can_read_the_components_setting() -> None:
    def settings_of(values: dict[str, Any]) -> ComponentSettings:
        env = render(values).one("Deployment")["spec"]["template"]["spec"]["containers"][0]["env"]
        return read_components(next(one["value"] for one in env if one["name"] == "GPULEDGER_COMPONENTS"))

    settings = settings_of(CASES["many"])
    assert (settings.manage, settings.namespace, settings.pull_secrets) == (True, NAMESPACE, ("pull",))
    assert set(settings.images) == set(COMPONENT_NAMES)
    settings = settings_of(CASES["components-of-others"])
    assert (settings.manage, settings.namespace) == (False, "gpu-operator")
    own = {"images": {"gfd": "registry.example/gfd:1"}, "runtimeClassName": "nvidia"}
    settings = settings_of({**WITH_SECRET, "components": own})
    assert (settings.images["gfd"], settings.runtime_class) == ("registry.example/gfd:1", "nvidia")


def test_a_budget_is_about_the_pods_of_its_component() -> None:
    made = render(WITH_SECRET)
    for manifest in component_daemon_sets():
        budget = made.one("PodDisruptionBudget", manifest["metadata"]["name"])
        labels = manifest["spec"]["template"]["metadata"]["labels"]
        assert budget["spec"]["selector"]["matchLabels"] == labels


def test_selectors_find_the_servers_pods_and_no_others(made: Manifests) -> None:
    selectors = [made.one("Deployment")["spec"]["selector"]["matchLabels"], made.one("Service")["spec"]["selector"]]
    if NAME in made.names("PodDisruptionBudget"):
        selectors.append(made.one("PodDisruptionBudget", NAME)["spec"]["selector"]["matchLabels"])
    spreads = made.one("Deployment")["spec"]["template"]["spec"]["topologySpreadConstraints"]
    selectors += [spread["labelSelector"]["matchLabels"] for spread in spreads]
    for one, pod in made.templates():
        for selector in selectors:
            is_found = selector.items() <= pod["metadata"]["labels"].items()
            assert is_found is (one["kind"] == "Deployment"), one["metadata"]["name"]


def test_every_object_has_the_standard_labels(made: Manifests) -> None:
    for one in made.objects:
        labels = one["metadata"]["labels"]
        assert labels["app.kubernetes.io/instance"] == RELEASE
        assert labels["app.kubernetes.io/managed-by"] == "Helm"
        standard = {f"app.kubernetes.io/{name}" for name in ("name", "version", "component", "part-of")}
        assert standard | {"helm.sh/chart"} <= labels.keys()


@pytest.mark.parametrize(
    ("given", "release", "expected"),
    [
        ({}, "gpuledger", "gpuledger"),
        ({"nameOverride": "ledger"}, "lab", "lab-ledger"),
        ({"fullnameOverride": "fleet"}, "lab", "fleet"),
        ({}, "r" * 53, "r" * 49),
    ],
)
def test_names(given: dict[str, str], release: str, expected: str) -> None:
    made = render({**WITH_URLS, **given, "nfdCoverage": {"enabled": True}}, release)
    names = {one["metadata"]["name"] for one in made.objects}
    waiting = standby(made)["metadata"]["name"]
    assert names == {expected, NFD_COVERAGE, waiting, SERVICE, *POLICIES, *ROLES_OF_PEOPLE, *COMPONENTS} | {
        f"{expected}-{suffix}"
        for suffix in (*JOB_SUFFIXES, "components", "coverage", "nfd-coverage", "admission", "ledger", "scaling")
    }
    assert max(map(len, names)) <= 63


WRONG: list[tuple[dict[str, Any], str]] = [
    (
        {**IMAGE, "nats": {"enabled": False}},
        "servers.natsUrl is required without nats.enabled: give it, name a Secret that holds both URLs",
    ),
    (
        {**IMAGE, "servers": {"natsUrl": NATS}, "postgresql": {"enabled": False}},
        "servers.databaseUrl is required without postgresql.enabled",
    ),
    ({**IMAGE, "postgresql": {"replicas": 2}}, "postgresql.replicas"),
    ({**IMAGE, "nats": {"replicas": 2}}, "nats.replicas must be one of"),
    ({**IMAGE, "servers": {"nats": {"tlsSecret": "mine"}}}, "are logins for a NATS server of your own"),
    ({**IMAGE, "servers": {"database": {"tlsSecret": "mine"}}}, "about a PostgreSQL server of your own"),
    ({**IMAGE, "agent": {"nats": {"credentialsSecret": "mine"}}}, "are for a NATS server of your own"),
    (
        {**IMAGE, "nats": {"persistence": {"size": "much"}}},
        'nats.persistence.size is "much", and not an amount of storage such as 20Gi',
    ),
    ({**WITH_URLS, "servers": {**WITH_URLS["servers"], "existingSecret": "given"}}, "are both given"),
    ({"servers": WITH_URLS["servers"]}, "image.repository is required: build the image from the Dockerfile"),
    ({**WITH_SECRET, "replicas": "two"}, "replicas: Invalid type. Expected: integer"),
    ({**WITH_SECRET, "replicas": -1}, "replicas: Must be greater than or equal to 0"),
    ({**WITH_SECRET, "replica": 2}, "Additional property replica is not allowed"),
    ({**WITH_SECRET, "nfdCoverage": {"enabled": "yes"}}, "nfdCoverage.enabled: Invalid type. Expected: boolean"),
    (
        {**WITH_SECRET, "nfdCoverage": {"schedule": "hourly"}},
        'nfdCoverage.schedule is "hourly", and not a schedule of a CronJob',
    ),
    ({**WITH_SECRET, "logArchive": {"enabled": True}}, "logArchive.location is missing"),
    ({**WITH_SECRET, "logArchive": {"location": "/folder"}}, "not a place for an archive"),
    ({**WITH_SECRET, "logArchive": {"close": "never"}}, "not a time to close a generation"),
    ({**WITH_SECRET, "logProof": {"schedule": ""}}, 'logProof.schedule is "", and not a schedule of a CronJob'),
    (
        {**WITH_SECRET, "image": {"repository": "r/g:1"}},
        'image.repository is "r/g:1", and not an image without a tag or digest',
    ),
    ({**IMAGE, "servers": {"natsUrl": "db.example"}}, "servers.natsUrl is not a URL such as nats://"),
    ({**WITH_SECRET, "components": {"images": {"gfd": ""}}}, "components.images.gfd: String length must be greater"),
    ({**WITH_SECRET, "components": {"enabled": True}}, "Additional property enabled is not allowed"),
    ({**WITH_SECRET, "components": {"namespace": "gpu-operator"}}, "where somebody else's components run"),
    ({**WITH_SECRET, "admission": {"enabled": "on"}}, "admission.enabled: Invalid type. Expected: boolean"),
    (
        {**WITH_SECRET, "settings": {"bootstrap": {"gdf": {}}}},
        "Additional property gdf is not allowed",
    ),
    (
        {**WITH_SECRET, "settings": {"inventory": {"resyncPeriod": "5s"}}},
        'settings.inventory.resyncPeriod is "5s", and not a period of at least 30s',
    ),
    ({**WITH_SECRET, "service": {"port": 0}}, "service.port: Must be greater than or equal to 1"),
]


def test_user_ids_can_be_left_to_the_platform_and_the_image_named_by_its_digest() -> None:
    digest = f"sha256:{'0' * 64}"
    given = {"podSecurityContext": {"runAsUser": None}, "image": {**IMAGE["image"], "digest": digest, "tag": "x"}}
    pod = render({**WITH_SECRET, **given}).one("Deployment")["spec"]["template"]["spec"]
    assert "runAsUser" not in pod["securityContext"]
    assert pod["containers"][0]["image"] == f"registry.example/gpuledger@{digest}"


@pytest.mark.parametrize(("values", "expected"), WRONG, ids=[expected for _, expected in WRONG])
def test_wrong_values_are_refused_in_words(values: dict[str, Any], expected: str) -> None:
    result = template(values)
    assert result.code != 0
    assert expected in result.err


def test_an_older_kubernetes_is_refused() -> None:
    result = template(WITH_SECRET, RELEASE, "--kube-version", "1.33.9")
    assert result.code != 0
    assert "incompatible with Kubernetes" in result.err
