"""`sluice plan` as people run it: exit codes, JSON, tables of their own, and that what is to be pasted does what it says where the platform's tools are played.

SLUICE_TEST_CRDS: a folder with jobset.x-k8s.io_jobsets.yaml; without it the JobSet is not held to its schema."""

import copy
import json
import os
import re
import shutil
import subprocess
import unittest
from pathlib import Path

from sluice_process import DEADLINE_S, SluiceTest, environment, main

try:
    import yaml
except ImportError:
    yaml = None
try:
    import jsonschema
except ImportError:
    jsonschema = None

ROOT = Path(__file__).resolve().parents[2]
EIGHT = ["plan", "--workers", "8", "--worker-type", "a2-highgpu-8g", "--reducer-type", "n1-highcpu-16"]


def strict(schema):
    """The schema of a CRD with keys that it does not name refused, and its integers that may be strings known to jsonschema."""
    if isinstance(schema, list):
        return [strict(entry) for entry in schema]
    if not isinstance(schema, dict):
        return schema
    out = {key: strict(value) for key, value in schema.items()}
    if out.pop("x-kubernetes-int-or-string", False):
        out.pop("type", None)
        out["anyOf"] = [{"type": "integer"}, {"type": "string"}]
    if isinstance(out.get("properties"), dict) and "additionalProperties" not in out and "x-kubernetes-preserve-unknown-fields" not in out:
        out["additionalProperties"] = False
    return out


class Plan(SluiceTest):
    def plan(self, *arguments, expect=0, env=None):
        return self.run_sluice("plan", *arguments, expect=expect, env=env)

    def json_of(self, *arguments, env=None):
        return json.loads(self.plan(*arguments, "--format", "json", env=env).stdout)

    def bash(self, script, env, *arguments, expect=0):
        """Runs the text as a script, with the folder's bin/ in front of PATH."""
        path = self.folder / "pasted.sh"
        path.write_text(script)
        subprocess.run(["bash", "-n", path], check=True, timeout=DEADLINE_S)
        done = subprocess.run(["bash", path, *arguments], capture_output=True, text=True, timeout=DEADLINE_S, check=False,
                              env=environment({"PATH": f"{self.folder}/bin:{os.environ['PATH']}"} | env))
        self.assertEqual(done.returncode, expect, done.stdout + done.stderr)
        return done

    def play(self, name, body):
        """A program of that name for the scripts."""
        path = self.folder / "bin" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("#!/bin/bash\n" + body)
        path.chmod(0o755)

    def test_json_holds_the_examples_of_the_rule(self):
        five = self.json_of("--workers", "5", "--worker-gbps", "100", "--reducer-type", "n1-highcpu-16")
        self.assertEqual((five["reducers"], five["coverage"], five["speedup"]), (16, 1.024, 1.6))
        eight = self.json_of(*EIGHT[1:])
        self.assertEqual((eight["reducers"], eight["coverage"], eight["verdict"]), (25, 1.0, "pays"))
        self.assertAlmostEqual(eight["cost"]["extra_share"], 0.0603, 4)
        self.assertAlmostEqual(eight["cost"]["break_even_share"], 0.1326, 4)
        self.assertEqual(eight["speedup_flat_ring"], 2 * 63 / 64)
        seconds = eight["predicted_seconds"]
        self.assertAlmostEqual(seconds["reducers"], 2**28 * 8 / 100e9)
        self.assertAlmostEqual(seconds["ring_of_nodes"] / seconds["reducers"], 1.75)
        self.assertEqual(set(eight), {"verdict", "sentence", "reducers", "coverage", "headroom", "speedup", "speedup_flat_ring", "speedup_tree", "workers",
                                      "reducer", "message_bytes", "predicted_seconds", "cost", "flows", "memory", "busy_processors_per_reducer", "candidates",
                                      "warnings", "notes"})
        forced = self.json_of(*EIGHT[1:], "--reducers", "24")
        self.assertEqual(forced["coverage"], 0.96)
        self.assertTrue(any("coverage 0.96" in warning for warning in forced["warnings"]), forced["warnings"])

    def test_the_worked_table_of_the_docs_is_what_the_program_says(self):
        rows = re.findall(r"^\| `(--worker-type [^`]+)` \| (.+) \|$", (ROOT / "docs" / "sizing.md").read_text(), re.MULTILINE)
        self.assertGreaterEqual(len(rows), 9)
        for options, figures in rows:
            plan = self.json_of("--workers", "8", *options.split())
            even = plan["cost"]["break_even_share"]
            said = [str(plan["reducers"]), f"{plan['coverage']:.2f}", f"{plan['speedup']:.2f}", f"{plan['speedup_flat_ring']:.2f}",
                    f"{100 * plan['cost']['extra_share']:.1f} %", "never" if even is None else f"{100 * even:.0f} %"]
            self.assertEqual(figures.split(" | "), said, options)

    def test_an_answer_that_says_no_is_exit_0(self):
        self.assertIn("no gain", self.plan("--workers", "2", "--worker-gbps", "100", "--provider", "gcp").stdout)
        never = self.plan("--workers", "8", "--worker-type", "p5.48xlarge", "--reducer-type", "c8gn.48xlarge").stdout
        self.assertTrue(never.startswith("43 x c8gn.48xlarge"), never)
        self.assertIn("does not pay", never)
        self.assertIn("NCCL 2.28.3 and newer", " ".join(self.plan("--workers", "8", "--worker-type", "a2-megagpu-16g").stdout.split()))

    def test_a_bad_option_is_exit_64_and_one_line(self):
        for arguments in (["--workers", "0", "--worker-gbps", "1"], ["--workers", "8"], ["--workers", "8", "--worker-gbps", "100"],
                          ["--workers", "8", "--worker-gbps", "nan", "--provider", "gcp"], [*EIGHT[1:], "--headroom", "2"],
                          [*EIGHT[1:], "--format", "yaml"], [*EIGHT[1:], "--format", "jobset", "--name", "A_b"],
                          ["--workers", "8", "--worker-type", "p4d.24xlarge", "--format", "gcloud"],
                          ["--workers", "8", "--worker-type", "p4d.24xlarge", "--reducer-type", "x; rm -rf /", "--reducer-gbps", "1"]):
            done = self.plan(*arguments, expect=64)
            self.assertEqual((done.stdout, done.stderr.count("\n")), ("", 1), done.stderr)
        self.assertIn("n1-highcpu-16", self.plan("--workers", "8", "--worker-gbps", "1", "--reducer-type", "n1-higcpu-16", expect=64).stderr)

    def test_a_table_of_ones_own_goes_over_the_one_built_in(self):
        table = self.folder / "prices.csv"
        table.write_text('# ours\nprovider,type,role,gbps,usd_per_hour,note\ngcp,n1-highcpu-16,reducer,32,"0.25","with, a contract"\nus,rack,reducer,200,1.5,\n')
        mine = self.json_of(*EIGHT[1:], "--prices", table)
        self.assertEqual((mine["reducer"]["usd_per_hour"], mine["workers"]["usd_per_hour"]), (0.25, 29.3871))
        rack = self.json_of("--workers", "8", "--worker-gbps", "100", "--reducer-type", "rack", env={"SLUICE_PRICES": str(table)})
        self.assertEqual((rack["reducers"], rack["reducer"]["provider"]), (4, "us"))
        table.write_text("provider,type,role,gbps\naws,a,reducer,ten\n")
        done = self.plan(*EIGHT[1:], "--prices", table, expect=78)
        self.assertIn(f'{table}:2:15: "ten" is no bandwidth', done.stderr)
        self.assertEqual(done.stderr.count("\n"), 1)
        self.plan(*EIGHT[1:], "--prices", self.folder / "none.csv", expect=78)

    def test_where_a_job_runs_its_list_of_reducers_is_no_count(self):
        self.assertEqual(self.json_of(*EIGHT[1:], env={"SLUICE_REDUCERS": "a:7470,b:7470"})["reducers"], 25)

    def test_gcloud_gets_three_pools(self):
        self.play("gcloud", 'printf "%s\\n" "$@"\n')
        script = self.run_sluice(*EIGHT, "--format", "gcloud", "--name", "big-job").stdout
        filled = {"REGION": "r1", "WORKER_IMAGE": "w:1", "REDUCER_IMAGE": "s:2"}
        called = self.bash(script, filled).stdout.splitlines()
        self.assertEqual(called[:5], ["ai", "custom-jobs", "create", "--region=r1", "--display-name=big-job"])
        pools = [dict(pair.split("=", 1) for pair in line.removeprefix("--worker-pool-spec=").split(",")) for line in called[5:]]
        self.assertEqual([pool["replica-count"] for pool in pools], ["1", "7", "25"])
        self.assertEqual([pool["container-image-uri"] for pool in pools], ["w:1", "w:1", "s:2"])
        self.assertEqual([pool["machine-type"] for pool in pools], ["a2-highgpu-8g", "a2-highgpu-8g", "n1-highcpu-16"])
        self.assertEqual(pools[0]["accelerator-count"], "8")
        for missing in filled:  # nothing is started half filled in
            done = self.bash(script, {key: value for key, value in filled.items() if key != missing}, expect=1)
            self.assertEqual(done.stdout, "")
            self.assertIn(missing, done.stderr)

    def test_sbatch_starts_reducers_then_the_training(self):
        log = self.folder / "log"
        self.play("scontrol", '[[ "$*" == "show hostnames cpu[1-2]" ]] && printf "cpu1\\ncpu2\\n"\n')
        self.play("scancel", f'echo "scancel $*" >>{log}\nread -r pid <{self.folder}/step && kill "$pid"\n')
        self.play("srun", f'echo "srun $* reducers=${{SLUICE_REDUCERS:-}} plugin=${{NCCL_NET_PLUGIN:-}}" >>{log}\n[[ "$1" == --het-group=1 ]] || exit 7\n'
                          f'echo $$ >{self.folder}/step\nexec tail -f /dev/null\n')
        self.play("sluice", f'echo "sluice $*" >>{log}\n[[ $1 != status ]] || [[ -s {self.folder}/step ]]\n')
        script = self.run_sluice(*EIGHT, "--format", "sbatch", "--name", "big-job").stdout
        directives = [line.removeprefix("#SBATCH ") for line in script.splitlines() if line.startswith("#SBATCH")]
        cut = directives.index("hetjob")
        self.assertIn("--nodes=8", directives[:cut])
        self.assertIn("--gpus-per-node=8", directives[:cut])
        self.assertIn("--nodes=25", directives[cut:])
        slurm = {"SLURM_SUBMIT_DIR": str(self.folder), "SLURM_JOB_ID": "5", "SLURM_JOB_ID_HET_GROUP_1": "6", "SLURM_JOB_NODELIST_HET_GROUP_1": "cpu[1-2]"}
        self.bash(script, slurm, expect=64)
        self.assertFalse(log.exists(), "something was started without a command")
        self.bash(script, slurm, "train", "--epochs 3", expect=7)  # the training's exit code is the job's
        lines = log.read_text().splitlines()
        self.assertTrue(any(line.startswith("sluice keygen --out") for line in lines), lines)
        reducers = next(line for line in lines if line.startswith("srun --het-group=1"))
        self.assertIn("sluice reducer --listen *:7470 --http-listen *:9470", reducers)
        self.assertIn("srun --het-group=0 train --epochs 3 reducers=cpu1:7470,cpu2:7470 plugin=sluice", lines)
        self.assertIn("scancel --signal=TERM 6.0", lines)
        self.assertEqual(list(self.folder.glob(".sluice-*")), [], "the key is left behind")

    @unittest.skipIf(yaml is None, "python3-yaml is missing")
    def test_jobset_waits_for_the_reducers_it_names(self):
        parsed = yaml.safe_load(self.run_sluice(*EIGHT, "--format", "jobset", "--name", "big-job").stdout)
        reducers, workers = parsed["spec"]["replicatedJobs"]
        self.assertEqual(workers["dependsOn"], [{"name": "reducers", "status": "Ready"}])
        self.assertEqual(parsed["spec"]["successPolicy"]["targetReplicatedJobs"], ["workers"])
        self.assertEqual((reducers["template"]["spec"]["parallelism"], workers["template"]["spec"]["completions"]), (25, 8))
        container = workers["template"]["spec"]["template"]["spec"]["containers"][0]
        self.assertEqual(container["resources"]["limits"], {"nvidia.com/gpu": 8})
        listed = {entry["name"]: entry["value"] for entry in container["env"]}["SLUICE_REDUCERS"].replace(" ", "").split(",")
        self.assertEqual(listed, [f"big-job-reducers-0-{i}.big-job:7470" for i in range(25)])
        for count in ("3", "4", "5"):
            few = yaml.safe_load(self.run_sluice(*EIGHT, "--format", "jobset", "--reducers", count).stdout)
            env = few["spec"]["replicatedJobs"][1]["template"]["spec"]["template"]["spec"]["containers"][0]["env"]
            self.assertEqual(len({entry["name"]: entry["value"] for entry in env}["SLUICE_REDUCERS"].split(",")), int(count))

    @unittest.skipIf(yaml is None or jsonschema is None, "python3-yaml or python3-jsonschema is missing")
    def test_jobset_is_as_its_definition_wants_it(self):
        folder = os.environ.get("SLUICE_TEST_CRDS")
        if not folder:
            self.skipTest("SLUICE_TEST_CRDS names no folder with jobset.x-k8s.io_jobsets.yaml")
        definition = yaml.safe_load((Path(folder) / "jobset.x-k8s.io_jobsets.yaml").read_text())
        version = next(entry for entry in definition["spec"]["versions"] if entry["name"] == "v1alpha2")
        schema = strict(version["schema"]["openAPIV3Schema"])
        schema["properties"]["metadata"] = {"type": "object"}
        parsed = yaml.safe_load(self.run_sluice(*EIGHT, "--format", "jobset").stdout)
        jsonschema.validate(parsed, schema)
        broken = copy.deepcopy(parsed)
        broken["spec"]["replicatedJobs"][0]["template"]["spec"]["paralelism"] = 1
        with self.assertRaises(jsonschema.ValidationError):
            jsonschema.validate(broken, schema)

    @unittest.skipIf(yaml is None, "python3-yaml is missing")
    def test_kustomize_patches_the_set_of_reducers(self):
        text = self.run_sluice(*EIGHT, "--format", "kustomize").stdout
        overlay = yaml.safe_load(text)
        self.assertEqual(overlay["replicas"], [{"name": "sluice-reducer", "count": 25}])
        patch = yaml.safe_load(overlay["patches"][0]["patch"])
        self.assertEqual(patch["spec"]["template"]["spec"]["nodeSelector"], {"node.kubernetes.io/instance-type": "n1-highcpu-16"})
        if shutil.which("kubectl") is None:
            self.skipTest("kubectl is missing: the overlay was read, not built")
        base = self.folder / "base"
        base.mkdir()
        (base / "kustomization.yaml").write_text("resources: [set.yaml]\n")
        (base / "set.yaml").write_text(
            "apiVersion: apps/v1\nkind: StatefulSet\nmetadata: {name: sluice-reducer}\nspec:\n  replicas: 2\n  serviceName: sluice-reducer\n"
            "  selector: {matchLabels: {app: r}}\n  template:\n    metadata: {labels: {app: r}}\n    spec:\n      containers:\n"
            "        - {name: reducer, image: i, env: [{name: SLUICE_LOG_LEVEL, value: info}]}\n")
        (self.folder / "big").mkdir()
        (self.folder / "big" / "kustomization.yaml").write_text(text)
        done = subprocess.run(["kubectl", "kustomize", self.folder / "big"], capture_output=True, text=True, timeout=DEADLINE_S, check=False)
        if done.returncode != 0 and "unknown field" in done.stderr:
            self.skipTest(f"this kubectl is too old for `replicas`: {done.stderr.strip()}")
        self.assertEqual(done.returncode, 0, done.stderr)
        built = yaml.safe_load(done.stdout)
        self.assertEqual(built["spec"]["replicas"], 25)
        container, = built["spec"]["template"]["spec"]["containers"]
        self.assertEqual(container["image"], "i")
        self.assertEqual({entry["name"] for entry in container["env"]}, {"SLUICE_LOG_LEVEL", "SLUICE_LANES_PER_SESSION", "SLUICE_MEMORY_LIMIT"})


if __name__ == "__main__":
    main()
