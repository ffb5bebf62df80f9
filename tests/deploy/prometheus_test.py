"""Tests deploy/prometheus and deploy/grafana with promtool and with the metrics of a reducer under load."""

import contextlib
import http.client
import json
import re
import subprocess
import sys
from pathlib import Path

import deploy_case
from deploy_case import main, need, until

from sluice_process import SluiceTest  # noqa: E402: deploy_case says where it is

sys.path.append(str(Path(__file__).resolve().parents[1] / "lint"))

import page_rules  # noqa: E402

# Series that Prometheus itself adds.
NOT_SERVED = {"up"}
RULES_TEST = Path(__file__).with_name("prometheus_rules_test.yml")
KEYWORDS = {"by", "without", "on", "ignoring", "sum", "max", "count", "rate", "increase", "histogram_quantile", "max_over_time", "changes", "and", "or", "unless", "label_values"}


def metric_names(expression):
    """Returns the names of the series in an expression: no labels, no label matchers and no keywords."""
    bare = re.sub(r'"[^"]*"', "", expression)
    bare = re.sub(r"\{[^}]*\}", "", bare)
    bare = re.sub(r"\[[^\]]*\]", "", bare)
    bare = re.sub(r"\b(by|without|on|ignoring)\s*\([^)]*\)", "", bare)
    return {name for name in re.findall(r"[a-zA-Z_:][\w:]*", bare) if name not in KEYWORDS}


class Promtool(SluiceTest):
    @classmethod
    def setUpClass(cls):
        need("promtool")  # package prometheus
        cls.rules = (deploy_case.ROOT / "deploy/prometheus/rules.yml").read_text()
        cls.dashboard = json.loads((deploy_case.ROOT / "deploy/grafana/sluice.json").read_text())

    def promtool(self, *arguments, text=None):
        done = subprocess.run(["promtool", *map(str, arguments)], capture_output=True, text=True, input=text, timeout=60, check=False,
                              cwd=deploy_case.ROOT / "deploy/prometheus")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return done.stdout + done.stderr

    def dashboard_expressions(self):
        found = [target["expr"] for panel in self.dashboard["panels"] for target in panel["targets"]]
        self.assertGreater(len(found), 20)
        return found

    def rule_lines(self, key):
        return re.findall(rf"^ +(?:- )?{key}: (.*)$", self.rules, re.MULTILINE)

    def test_rules_pass_their_tests(self):
        self.promtool("check", "rules", "rules.yml")
        self.promtool("check", "config", "scrape.yml")
        self.promtool("test", "rules", RULES_TEST)

    def test_each_alert_is_tested_and_has_a_runbook(self):
        tested = set(re.findall(r"alertname: (\w+)", RULES_TEST.read_text()))
        alerts = self.rule_lines("alert")
        self.assertEqual(tested, set(alerts))
        links = self.rule_lines("runbook_url")
        self.assertEqual(len(links), len(alerts))
        for alert, link in zip(alerts, links, strict=True):
            name, _, anchor = link.removeprefix("https://sluice.example/").partition("#")
            page = (deploy_case.ROOT / name).read_text()
            self.assertEqual(anchor, alert.lower())
            self.assertIn(anchor, page_rules.anchors(page), f"{name} has no section for the alert")
        self.assertEqual([line for line in re.findall(r"^### (Sluice\w+)$", page, re.MULTILINE) if line not in alerts], [], "no such alert")

    def test_the_rules_of_kubernetes_are_the_same(self):
        copy = (deploy_case.ROOT / "deploy/kubernetes/components/monitors/rules.yaml").read_text()
        self.assertEqual(copy.partition("\nspec:\n")[2], re.sub(r"^(?=.)", "  ", self.rules, flags=re.MULTILINE), "update it with the command in its first lines")

    def test_panel_expressions_are_valid(self):
        rules = ["groups:", "- name: dashboard", "  rules:"]
        for i, expression in enumerate(self.dashboard_expressions()):
            concrete = expression.replace("$__rate_interval", "5m").replace("$job", ".*").replace("$instance", ".*")
            self.assertNotIn("$", concrete)
            rules += [f"  - record: panel:{i}", f"    expr: {json.dumps(concrete)}"]
        path = self.folder / "dashboard.yml"
        path.write_text("\n".join(rules) + "\n")
        self.promtool("check", "rules", path)
        ids = [panel["id"] for panel in self.dashboard["panels"]]
        self.assertEqual(len(ids), len(set(ids)))
        self.assertEqual(self.dashboard["uid"], "sluice-pool")

    def test_used_series_are_served(self):
        served = self.live_metrics()
        self.assertEqual(self.promtool("check", "metrics", text=served), "")  # names, units, helps
        declared = dict(re.findall(r"^# TYPE (\S+) (\S+)$", served, re.MULTILINE))
        series = {name for name, kind in declared.items() if kind != "histogram"}
        series |= {name + part for name, kind in declared.items() if kind == "histogram" for part in ("_bucket", "_sum", "_count")}
        recorded = set(self.rule_lines("record"))
        # A reducer serves these series only with an RDMA device, a known link speed or after an error.
        rare = {"sluice_rdma_completion_errors_total", "sluice_rdma_port_losses_total", "sluice_transport_info", "sluice_link_speed_bytes_per_second"}
        page = (deploy_case.ROOT / "docs/reference/metrics.md").read_text()
        documented = set(re.findall(r"^\|`([a-z_]+)`", page, re.MULTILINE))
        for expression in self.rule_lines("expr") + self.dashboard_expressions():
            names = metric_names(expression)
            self.assertTrue(names, expression)
            self.assertEqual(names - series - recorded - NOT_SERVED - rare, set(), expression)
        self.assertEqual(set(declared) - documented, set(), "not in docs/reference/metrics.md")
        rows = dict(re.findall(r"^\|`([a-z_]+)`\|(\w+\|.*)\|$", page, re.MULTILINE))
        helps = dict(re.findall(r"^# HELP (\S+) (.*)$", served, re.MULTILINE))
        for name, text in helps.items():
            kind, _, meaning = (cell.strip() for cell in rows[name].split("|"))
            self.assertEqual((name, kind, meaning), (name, declared[name], text))
        self.assertEqual({name for name in documented if name.startswith(("sluice_", "process_"))} - set(declared) - rare, set(), "not served")
        # These series cannot be tested here. At least the source must contain their names.
        source = (deploy_case.ROOT / "reducer/admin/metrics.cc").read_text()
        self.assertEqual({name for name in rare if f'"{name}"' not in source}, set())

    def test_a_client_without_a_token_fires_the_alert(self):
        _, address, port = self.start_http_reducer("--key-file", self.make_key())

        def count():
            return float(re.search(r'^sluice_refused_joins_total\{reason="unauthenticated"\} (\S+)$', self.scrape(port), re.MULTILINE)[1])
        before = count()
        self.run_sluice("status", "--reducers", address, expect=69)
        after = until("the refused client is counted", lambda: count() if count() > before else None)
        series = {"series": 'sluice_refused_joins_total{instance="a",reason="unauthenticated"}', "values": f"{before:g}x4 {after:g}x4"}
        rules = deploy_case.ROOT / "deploy/prometheus/rules.yml"
        for minutes, fires in ((4, False), (7, True)):
            expression = 'ALERTS{alertname="SluiceJoinsRefused",alertstate="firing"}'
            sample = [{"labels": 'ALERTS{alertname="SluiceJoinsRefused",alertstate="firing",instance="a",reason="unauthenticated",severity="warning"}', "value": 1}]
            test = {"interval": "1m", "input_series": [series],
                    "promql_expr_test": [{"expr": expression, "eval_time": f"{minutes}m", "exp_samples": sample if fires else []}]}
            self.promtool("test", "rules", self.write("alert.yml", json.dumps({"rule_files": [str(rules)], "evaluation_interval": "1m", "tests": [test]})))

    def scrape(self, port):
        with contextlib.closing(http.client.HTTPConnection("127.0.0.1", port, timeout=10)) as connection:
            connection.request("GET", "/metrics")
            reply = connection.getresponse()
            text = reply.read().decode()
        self.assertEqual(reply.status, 200, text)
        return text

    def live_metrics(self):
        """Returns /metrics of a reducer that has a model, and has completed a session."""
        _, address, port = self.start_http_reducer("--state", self.folder / "state")
        model = {"name": "m", "versions": 2, "mode": {"kind": "async"}, "rule": {"kind": "add"}, "tensors": [{"name": "x", "dtype": "f32", "shape": [4]}]}
        self.run_sluice("store", "create", "--reducers", address, self.write("model.json", json.dumps(model)))
        self.run_sluice("bench", "allreduce", "-b", "64K", "-e", "64K", "-n", "5", "--workers", "2", "--connect", address)

        def completed():
            text = self.scrape(port)
            return text if 'result="completed"} 1' in text else None

        return until("the session has ended", completed)


if __name__ == "__main__":
    main()
