"""Tests deploy/cloudwatch: promtool checks what is scraped, Prometheus itself scrapes a reducer with it, and the metrics and dimensions that
go to CloudWatch exist. The agent and the collector do not run here."""

import json
import re
import subprocess
import urllib.parse
import urllib.request

import deploy_case
from deploy_case import DeployTest, free_port, main, need, until

try:
    import yaml
except ImportError:
    yaml = None

UNITS = {"_bytes": "Bytes", "_bytes_total": "Bytes", "_seconds": "Seconds", "_seconds_total": "Seconds"}


def read(name):
    return (deploy_case.ROOT / "deploy/cloudwatch" / name).read_text(encoding="utf-8")


def agent():
    """Returns [(dimensions, label matcher, selectors)] and {metric: unit} of the CloudWatch agent."""
    processor = json.loads(read("agent.json"))["logs"]["metrics_collected"]["prometheus"]["emf_processor"]
    rules = [(rule["dimensions"], (rule["source_labels"], rule["label_matcher"]), rule["metric_selectors"]) for rule in processor["metric_declaration"]]
    return rules, processor["metric_unit"]


def collector():
    """The same of the OpenTelemetry collector."""
    exporter = yaml.safe_load(read("otel.yaml"))["exporters"]["awsemf"]
    rules = [(rule["dimensions"], (rule["label_matchers"][0]["label_names"], rule["label_matchers"][0]["regex"]), rule["metric_name_selectors"])
             for rule in exporter["metric_declarations"]]
    return rules, {each["metric_name"]: each["unit"] for each in exporter["metric_descriptors"]}


def documented():
    """Returns {metric: (type, labels)} of the page of metrics."""
    rows = re.findall(r"^\|`([a-z_]+)`\|(\w+)\|([^|]*)\|", (deploy_case.ROOT / "docs/reference/metrics.md").read_text(encoding="utf-8"), re.MULTILINE)
    return {name: (kind, set(labels.split(":")[0].replace(",", " ").split())) for name, kind, labels in rows}


class CloudWatch(DeployTest):
    @classmethod
    def setUpClass(cls):
        need("promtool", "prometheus")
        if yaml is None:
            raise deploy_case.unittest.SkipTest("needs python-module:yaml: python3-yaml is not installed")

    def test_promtool_accepts_what_both_scrape(self):
        scraped = yaml.safe_load(read("otel.yaml"))["receivers"]["prometheus"]["config"]
        self.assertEqual(scraped, yaml.safe_load(read("scrape.yml")))
        self.command("promtool", "check", "config", deploy_case.ROOT / "deploy/cloudwatch/scrape.yml")
        self.command("promtool", "check", "config", self.write("receiver.yml", yaml.safe_dump(scraped)))
        self.assertNotRegex(read("otel.yaml"), r"\$[\w{$]", "the collector would replace a variable")
        path = json.loads(read("agent.json"))["logs"]["metrics_collected"]["prometheus"]["prometheus_config_path"]
        page = (deploy_case.ROOT / "docs/guides/deploy-platforms.md").read_text(encoding="utf-8")
        self.assertTrue(path in page, f"the page does not name {path}")

    def test_agent_and_collector_send_the_same(self):
        self.assertEqual(agent(), collector())

    def test_metrics_and_dimensions_exist(self):
        rows = documented()
        added = set(yaml.safe_load(read("scrape.yml"))["scrape_configs"][0]["static_configs"][0]["labels"])
        added |= {rule["target_label"] for rule in yaml.safe_load(read("scrape.yml"))["scrape_configs"][0]["relabel_configs"]}
        rules, units = agent()
        sent = set()
        for dimensions, (labels, matcher), selectors in rules:
            self.assertEqual((set(labels) - added, matcher), (set(), ".+"))
            for selector in selectors:
                names = [name for name in rows if re.search(selector, name)]
                self.assertTrue(names, selector)
                for name in names:
                    kind, own = rows[name]
                    self.assertIn(kind, ("gauge", "counter"), f"{name}: the agent drops histograms")
                    self.assertEqual(set().union(*dimensions) - added - own, set(), f"{name} has no such label")
                sent |= set(names)
        expected = {name: unit for name in sent for end, unit in UNITS.items() if name.endswith(end)}
        self.assertEqual(units, expected)

    def test_prometheus_scrapes_a_reducer_with_it(self):
        _, address, http = self.start_http_reducer()
        self.run_sluice("bench", "allreduce", "-b", "64K", "-e", "64K", "-n", "5", "--workers", "2", "--connect", address)
        text = re.sub(r"targets: .*", f'targets: ["127.0.0.1:{http}"]', read("scrape.yml")).replace("60s", "1s")
        port = free_port()
        log = self.folder / "log"
        server = self.start_process(["prometheus", f"--config.file={self.write('scrape.yml', text)}", f"--storage.tsdb.path={self.folder}/data",
                                     f"--web.listen-address=127.0.0.1:{port}"], log)

        def series(selector):
            address = f"http://127.0.0.1:{port}/api/v1/series?" + urllib.parse.urlencode({"match[]": selector})
            try:
                with urllib.request.urlopen(address, timeout=10) as answer:
                    return json.load(answer)["data"]
            except OSError:
                return []

        rules, _ = agent()
        for dimensions, _, selectors in rules:
            for selector in selectors:
                if "errors" in selector:
                    continue  # served after an error only
                found = until(f"Prometheus has {selector}", lambda s=selector: series(f'{{__name__=~"{s.strip("^$")}"}}') or None, server)
                for labels in found:
                    self.assertEqual(set().union(*dimensions) - set(labels), set(), labels)
                    self.assertEqual((labels["pool"], labels["reducer"]), ("default", "127.0.0.1"))
                self.assertEqual({name["__name__"] for name in found}, {name for name in documented() if re.search(selector, name)})
        server.terminate()
        self.assertEqual(server.wait(deploy_case.DEADLINE_S), 0, log.read_text())


if __name__ == "__main__":
    main()
