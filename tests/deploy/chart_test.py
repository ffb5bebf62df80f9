"""Renders the Helm chart and compares its objects with those of kustomize. Needs no program `helm`: a package of PyPI contains Helm."""

import copy
import re
import signal
import unittest
from pathlib import Path

import deploy_case
import kubernetes_case
from kubernetes_case import all_rules, kubernetes, rendered, schema_problems

from sluice_process import SluiceTest  # noqa: E402: deploy_case says where it is

import helm_python as helm  # noqa: E402: kubernetes_case has entered its environment
import kubernetes_rules as rules  # noqa: E402
import yaml  # noqa: E402

MODELS = {"enabled": True, "coordinator": "etcd://etcd:2379"}
MONITORS = {"podMonitor": True, "rules": True, "dashboard": True}
# Values that select what a folder of kustomize and its components contain.
SAME_AS_KUSTOMIZE = [
    ({}, ["overlays/tcp"]),
    ({"pool": {"network": "host"}}, ["overlays/hostnetwork"]),
    ({"pool": {"network": "rdma"}}, ["overlays/rdma"]),
    ({"tls": {"mode": "require", "certSecret": "sluice-tls"}}, ["overlays/tcp", "tls"]),
    ({"models": MODELS}, ["overlays/tcp", "models"]),
    ({"monitors": MONITORS}, ["overlays/tcp", "monitors"]),
]
# Everything that can be set, each different from its default.
ALL_VALUES = {
    "pool": {"replicas": 3, "image": "registry.example/sluice-reducer", "tag": "7", "pullSecrets": ["pull"], "keySecret": "my-key", "cpus": 8, "memory": "10Gi",
             "network": "rdma", "rdmaDevice": "rdma/mlx", "nodeSelector": {"pool": "cpu"}, "tolerations": [{"operator": "Exists"}],
             "options": {"health": True, "lanes-per-session": 4, "max-slot": 2097152, "drain-timeout": "1m"}, "patch": {"spec": {"template": {"spec": {"priorityClassName": "high"}}}}},
    "tls": {"mode": "on", "certSecret": "cert", "clientCaSecret": "ca"},
    "tenants": {"weights": {"acme": 3, "beta": 1}, "defaultWeight": 2, "memory": "2G", "jobIsTenant": True},
    "models": {**MODELS, "storage": "1Ti", "storageClass": "fast"},
    "monitors": {**MONITORS, "labels": {"release": "prometheus"}, "runbooks": "https://wiki.example/sluice/"},
    "workers": {"namespaces": ["team-a", "team-b"]},
}
KUSTOMIZE_LABELS = {"app.kubernetes.io/part-of"}
CHART_LABELS = {*KUSTOMIZE_LABELS, "app.kubernetes.io/instance", "app.kubernetes.io/managed-by", "helm.sh/chart", "checksum/variables"}


def chart_folder():
    return kubernetes() / "chart"


def objects_of(chart, values, name="sluice"):
    files = chart.render(values, name=name, namespace="ns")
    return [item for path, text in files.items() if path.endswith(".yaml") for item in yaml.safe_load_all(text) if item]


def chart_objects(values=None, name="sluice"):
    with helm.Chart.load(chart_folder()) as chart:
        return objects_of(chart, values or {}, name)


def notes(values):
    with helm.Chart.load(chart_folder()) as chart:
        return chart.render(values, name="sluice", namespace="ns")["sluice/templates/NOTES.txt"]


def comparable(node, ignored):
    """Returns a copy without the labels `ignored`, without the hash in the name of a ConfigMap, and with lists of named items as maps."""
    if isinstance(node, dict):
        return {key: comparable(value, ignored) for key, value in node.items() if key not in ignored and not (key in ("labels", "annotations") and set(value) <= ignored)}
    if isinstance(node, list):
        items = [comparable(item, ignored) for item in node]
        return {item["name"]: item for item in items} if items and all(isinstance(item, dict) and "name" in item for item in items) else items
    return re.sub(r"^(sluice-reducer)-[a-z0-9]{10}$", r"\1", node) if isinstance(node, str) else node


def by_kind_and_name(objects, ignored):
    found = {}
    for item in comparable(objects, ignored):
        key = (item["kind"], item["metadata"]["name"])
        assert key not in found, key
        # The chart has the standard labels on each object, a component of kustomize those of its file.
        item["metadata"]["labels"] = {key: value for key, value in item["metadata"].get("labels", {}).items() if key != "app.kubernetes.io/name"}
        found[key] = item
    return found


class Chart(unittest.TestCase):
    maxDiff = None

    def test_objects_are_those_of_kustomize(self):
        for values, folders in SAME_AS_KUSTOMIZE:
            with self.subTest(folders=folders):
                expected = by_kind_and_name(list(copy.deepcopy(rendered(*folders))), KUSTOMIZE_LABELS)
                found = by_kind_and_name(chart_objects(values), CHART_LABELS)
                # kustomize monitors all reducers of the namespace, the chart those of its release.
                if "monitors" in folders:
                    expected["PodMonitor", "sluice-reducer"]["spec"]["selector"]["matchLabels"]["app.kubernetes.io/name"] = "sluice-reducer"
                    dashboard = expected.pop(("ConfigMap", "sluice-dashboard"))
                    dashboard["metadata"]["name"] = "sluice-reducer-dashboard"
                    expected["ConfigMap", "sluice-reducer-dashboard"] = dashboard
                self.assertEqual(set(found), set(expected))
                for key, item in expected.items():
                    self.assertEqual(found[key], item, key)

    def test_schemas_and_rules(self):
        with_network_policy = {**ALL_VALUES, "pool": {**ALL_VALUES["pool"], "network": "pod"}}
        for values in [*(values for values, _ in SAME_AS_KUSTOMIZE), ALL_VALUES, with_network_policy]:
            objects = chart_objects(values, name="other")
            self.assertEqual(schema_problems(objects) + all_rules(objects), [], values)

    def test_values_take_effect(self):
        objects = {(item["kind"], item["metadata"]["name"]): item for item in chart_objects(ALL_VALUES)}
        pool = objects["StatefulSet", "sluice-reducer"]["spec"]
        spec = pool["template"]["spec"]
        container, = spec["containers"]
        self.assertEqual((pool["replicas"], container["image"]), (3, "registry.example/sluice-reducer:7"))
        self.assertEqual(container["resources"]["limits"], {"cpu": "8", "memory": "10Gi", "rdma/mlx": "1"})
        self.assertEqual((spec["imagePullSecrets"], spec["nodeSelector"], spec["tolerations"], spec["priorityClassName"]),
                         ([{"name": "pull"}], {"pool": "cpu"}, [{"operator": "Exists"}], "high"))
        self.assertEqual({volume["name"]: volume["secret"]["secretName"] for volume in spec["volumes"]}, {"key": "my-key", "tls": "cert", "tls-client": "ca"})
        claim, = pool["volumeClaimTemplates"]
        self.assertEqual((claim["spec"]["storageClassName"], claim["spec"]["resources"]), ("fast", {"requests": {"storage": "1Ti"}}))
        for name, value in {"SLUICE_HEALTH": "true", "SLUICE_LANES_PER_SESSION": "4", "SLUICE_MAX_SLOT": "2097152", "SLUICE_DRAIN_TIMEOUT": "1m", "SLUICE_TLS": "on", "SLUICE_WEIGHT": "acme=3,beta=1",
                            "SLUICE_DEFAULT_WEIGHT": "2", "SLUICE_TENANT_MEMORY_LIMIT": "2G", "SLUICE_TENANT_IS_JOB": "true", "SLUICE_MEMORY_LIMIT": "3840M",
                            "SLUICE_STATE_MEMORY": "3840M", "SLUICE_TLS_CLIENT_CA": "/run/secrets/tls-client/ca.crt"}.items():
            self.assertEqual(objects["ConfigMap", "sluice-reducer"]["data"][name], value, name)
        for key in (("PodMonitor", "sluice-reducer"), ("PrometheusRule", "sluice-reducer")):
            self.assertEqual(objects[key]["metadata"]["labels"]["release"], "prometheus")
        alert = objects["PrometheusRule", "sluice-reducer"]["spec"]["groups"][1]["rules"][0]
        self.assertEqual(alert["annotations"]["runbook_url"], "https://wiki.example/sluice/docs/guides/troubleshoot.md#sluicereducerdown")
        for coordinator, ports in (("etcd://a:4001,b:4001", [4001]), ("etcd://a,[fd00::2]:4001,[fd00::3]", [2379, 4001]), ("", [2379])):
            models = {"pool": {"replicas": 1}, "models": {**MODELS, "coordinator": coordinator}}
            policy, = (item for item in chart_objects(models) if (item["kind"], item["metadata"]["name"]) == ("NetworkPolicy", "sluice-reducer-models"))
            self.assertEqual([port["port"] for port in policy["spec"]["egress"][1]["ports"]], [53, 53, *ports])
            self.assertEqual(all_rules(chart_objects(models)), [])
        policy = next(item for item in chart_objects({"workers": {"namespaces": ["team-a"]}}) if item["kind"] == "NetworkPolicy")
        self.assertEqual(policy["spec"]["ingress"][0]["from"][1]["namespaceSelector"]["matchExpressions"][0]["values"], ["team-a"])

    def test_all_values_are_tested(self):
        with helm.Chart.load(chart_folder()) as chart:
            defaults, properties = chart.values, chart.schema["properties"]
        self.assertEqual({group: set(value) for group, value in ALL_VALUES.items()}, {group: set(value) for group, value in defaults.items()})
        self.assertEqual({group: set(value["properties"]) for group, value in properties.items() if group != "global"}, {group: set(value) for group, value in defaults.items()})
        for group, values in ALL_VALUES.items():
            self.assertEqual([name for name, value in values.items() if value == defaults[group][name]], [], group)

    def test_changed_variables_restart_reducers(self):
        def checksum(values):
            return rules.of_kind(chart_objects(values), "StatefulSet")[0]["spec"]["template"]["metadata"]["annotations"]["checksum/variables"]
        self.assertEqual(checksum({}), checksum({"pool": {"replicas": 5}}))
        self.assertNotEqual(checksum({}), checksum({"tenants": {"defaultWeight": 2}}))

    def test_releases_in_a_namespace_are_separate(self):
        values = {"models": MODELS, "monitors": MONITORS}
        first, second = (chart_objects(values, name) for name in ("a", "b"))
        names = [{(item["kind"], item["metadata"]["name"]) for item in objects} for objects in (first, second)]
        self.assertEqual(names[0] & names[1], set())
        labels, = [labels for _, labels, _, _ in rules.all_pods(second)]
        for item in rules.of_kind(first, "Service", "PodDisruptionBudget", "NetworkPolicy", "PodMonitor", "StatefulSet"):
            selector = item["spec"].get("podSelector", item["spec"].get("selector"))
            self.assertFalse(selector.get("matchLabels", selector).items() <= labels.items(), item["kind"])

    def test_wrong_values_are_refused(self):
        for values, text in [({"pool": {"replica": 3}}, "replica"), ({"pool": {"network": "bridge"}}, "network"), ({"pool": {"memory": "32G"}}, "memory"),
                             ({"pool": {"options": {"--lanes": 4}}}, "--lanes"), ({"tenants": {"weights": {"acme": 101}}}, "acme"), ({"tls": {"mode": False}}, "mode"),
                             ({"models": {"enabled": True}}, "models.coordinator: expected etcd://HOST:2379"),
                             ({"tls": {"certSecret": "cert"}}, "tls.mode: expected on or require"),
                             ({"tls": {"mode": "on", "clientCaSecret": "ca"}}, "tls.certSecret: expected a Secret"), ({"monitor": {}}, "monitor")]:
            with self.subTest(values), self.assertRaisesRegex(helm.HelmError, re.escape(text)):
                with helm.Chart.load(chart_folder()) as chart:
                    chart.validate_schema(values)
                    objects_of(chart, values)

    def test_values_of_the_page(self):
        page = (deploy_case.ROOT / "docs/guides/deploy-kubernetes.md").read_text(encoding="utf-8")
        values = yaml.safe_load(re.search(r"^```yaml\n(pool:\n.*?)^```$", page, re.MULTILINE | re.DOTALL).group(1))
        objects = chart_objects(values)
        self.assertEqual(schema_problems(objects) + all_rules(objects), [])

    def test_lint(self):
        for values in ({}, ALL_VALUES):
            report = helm.lint(chart_folder(), values, strict=True, kube_version="v1.27.0")
            self.assertEqual(([m for m in report["messages"] if m["severity"] >= 2], report["errors"]), ([], []))

    def test_package_is_self_contained(self):
        with self.enterContext(helm.Chart.load(chart_folder())) as chart:
            version = deploy_case.version()
            self.assertEqual((chart.version, chart.metadata["appVersion"]), (version, version))
            expected = chart.render(ALL_VALUES, name="sluice", namespace="ns")
        folder = self.enterContext(kubernetes_case.tempfile.TemporaryDirectory())
        archive = helm.package(chart_folder(), destination=folder)
        self.assertEqual(Path(archive).name, f"sluice-{version}.tgz")
        with helm.Chart.load_archive(Path(archive).read_bytes()) as chart:
            self.assertEqual(chart.render(ALL_VALUES, name="sluice", namespace="ns"), expected)

    def test_notes_name_the_reducers(self):
        shown = dict(re.findall(r"^  (SLUICE_\w+)=(.*)$", notes({"pool": {"replicas": 2}, "tls": {"mode": "on"}}), re.MULTILINE))
        self.assertEqual(shown.pop("SLUICE_TLS"), "on")
        self.assertEqual(kubernetes_case.discover(shown), ["sluice-reducer-0.sluice-reducer.ns:7470", "sluice-reducer-1.sluice-reducer.ns:7470"])


class RunningReducer(SluiceTest):
    def test_a_reducer_accepts_all_values(self):
        """The variables of all values, without those that need an object of the cluster."""
        objects = chart_objects({**ALL_VALUES, "pool": {**ALL_VALUES["pool"], "network": "pod"}})
        container = rules.all_pods(objects)[0][2]["containers"][0]
        variables = rules.variables(container, objects)
        for name in ("SLUICE_TLS_CERT", "SLUICE_TLS_KEY", "SLUICE_TLS_CLIENT_CA", "SLUICE_COORDINATOR"):
            del variables[name]
        variables.update(SLUICE_LANES="4", SLUICE_KEY_FILE=str(self.make_key()), SLUICE_LISTEN="127.0.0.1:0", SLUICE_HTTP_LISTEN="127.0.0.1:0",
                         SLUICE_STATE=str(self.folder / "models"), SLUICE_ANNOUNCE="127.0.0.1", SLUICE_PORT_FILE=str(self.folder / "port"))
        del variables["POD"], variables["NAMESPACE"]
        self.assertNotIn(None, variables.values())
        reducer = self.start("reducer", env=variables)
        deploy_case.until("the reducer listens", (self.folder / "port").exists, reducer.process)
        self.assertIn("TLS offered", reducer.stderr())
        reducer.signal(signal.SIGTERM)
        self.assertEqual(reducer.wait(), 0, reducer.stderr())


if __name__ == "__main__":
    deploy_case.main()
