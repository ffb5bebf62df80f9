"""`sluice plan` as users run it: exit codes, JSON, user tables, and deployment files run with fake platform tools.
tests/deploy/kubernetes_test.py checks the manifests against schemas and rules, and slurm_test.py there runs the job script."""

import json
import os
import re
import subprocess
import unittest
from pathlib import Path
from xml.etree import ElementTree

from sluice_process import DEADLINE_S, SluiceTest, environment, main, until

try:
    import yaml
except ImportError:
    yaml = None

ROOT = Path(__file__).resolve().parents[2]
EIGHT = ["plan", "--workers", "8", "--worker-type", "a2-highgpu-8g", "--reducer-type", "n1-highcpu-16"]


class Plan(SluiceTest):
    def plan(self, *arguments, expect=0, env=None):
        return self.run_sluice("plan", *arguments, expect=expect, env=env)

    def json_of(self, *arguments, env=None):
        return json.loads(self.plan(*arguments, "--format", "json", env=env).stdout)

    def bash(self, script, env, *arguments, expect=0):
        """Runs the text as a script, with the folder's bin/ at the start of PATH."""
        path = self.write("script.sh", script)
        subprocess.run(["bash", "-n", path], check=True, timeout=DEADLINE_S)
        done = subprocess.run(["bash", path, *arguments], capture_output=True, text=True, timeout=DEADLINE_S, check=False,
                              env=environment({"PATH": f"{self.folder}/bin:{os.environ['PATH']}"} | env))
        self.assertEqual(done.returncode, expect, done.stdout + done.stderr)
        return done

    def add_fake_tool(self, name, body):
        """Installs a fake program of that name for the scripts."""
        path = self.folder / "bin" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("#!/bin/bash\n" + body)
        path.chmod(0o755)

    def test_json_matches_the_examples_of_the_sizing_rule(self):
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
                                      "co_located_share", "exposed_share", "paying_reducers", "pool_sizes", "warnings", "notes",
                                      "cpu_seconds_per_gb"})
        forced = self.json_of(*EIGHT[1:], "--reducers", "24")
        self.assertEqual(forced["coverage"], 0.96)
        self.assertTrue(any("coverage 0.96" in warning for warning in forced["warnings"]), forced["warnings"])

    def test_pool_sizes_go_from_a_ring_to_a_full_pool(self):
        job = ["--workers", "8", "--worker-gbps", "100", "--worker-price", "30", "--reducer-gbps", "100", "--reducer-price", "2"]
        sizes = self.json_of(*job)["pool_sizes"]
        self.assertEqual([size["reducers"] for size in sizes], list(range(9)))
        self.assertEqual((sizes[0]["time"], sizes[0]["speedup"], sizes[0]["co_located_share"], sizes[0]["pays_from_share"]), (1.75, 1, 1, None))
        self.assertEqual([f"{sizes[k]['time']:.3f}" for k in (2, 4, 6, 8)], ["1.474", "1.273", "1.120", "1.000"])
        self.assertEqual(sizes[8]["usd_per_hour"], 16)
        # Where communication matters less, fewer reducers pay.
        paying = [self.json_of(*job, "--exposed", share)["paying_reducers"] for share in ("0", "0.12", "1")]
        self.assertEqual(paying, sorted(paying))
        self.assertEqual((paying[0], paying[-1]), (0, 8))
        self.assertTrue(0 < paying[1] < 8, paying)
        self.assertIsNone(self.json_of(*job[:4], "--reducer-gbps", "100")["paying_reducers"])
        self.assertEqual(self.json_of(*job, "--slow-worker", "0.5")["pool_sizes"][0]["speedup"], 1.75)
        text = self.plan(*job, "--reducers", "4", "--exposed", "0.12").stdout
        self.assertIn("the workers sum 36 % of the data", " ".join(text.split()))
        self.assertIn(f"At 12 % exposed communication the cost of a step is lowest with {paying[1]} reducer", text)

    def test_the_plot_is_an_svg_file(self):
        plot = self.folder / "pool.svg"
        self.plan(*EIGHT[1:], "--plot", plot)
        root = ElementTree.parse(plot).getroot()
        curves = [curve.get("points").split() for curve in root.iter("{http://www.w3.org/2000/svg}polyline")]
        sizes = self.json_of(*EIGHT[1:])["pool_sizes"]
        self.assertEqual([len(curve) for curve in curves], [len(sizes) - 1, len(sizes)], "a pool alone needs a reducer")
        self.assertEqual(curves[0][-1], curves[1][-1], "both meet at a full pool")
        self.expect_error(1, "cannot write", *EIGHT, "--plot", self.folder / "none" / "pool.svg")
        self.expect_error(64, "the plot is SVG", *EIGHT, "--plot", self.folder / "pool.png")
        self.assertFalse((self.folder / "pool.png").exists())
        for one in (["--workers", "1", "--worker-gbps", "1", "--reducer-gbps", "1"], [*EIGHT[1:], "--pool-alone"]):
            self.assertIn("--plot", self.plan(*one, "--plot", self.folder / "no.svg", expect=64).stderr)
        self.assertFalse((self.folder / "no.svg").exists())

    def test_the_processors_are_those_that_were_measured(self):
        measured = (ROOT / "docs/results/benchmarks.md").read_text()
        with_checksums, with_health = (float(re.search(rf"^\| {name} \| (\d\.\d+) \|", measured, re.MULTILINE)[1]) for name in ("with checksums", "with --health"))
        plain = self.json_of(*EIGHT[1:])
        self.assertAlmostEqual(plain["cpu_seconds_per_gb"], with_checksums, delta=0.01)
        self.assertAlmostEqual(self.json_of(*EIGHT[1:], "--with-health")["cpu_seconds_per_gb"], with_health, delta=0.02)
        tls = self.json_of(*EIGHT[1:], "--with-tls")
        self.assertGreater(tls["busy_processors_per_reducer"], 2 * plain["busy_processors_per_reducer"])
        limits = [int(re.search(r'limits:\n +cpu: "(\d+)"', self.plan(*EIGHT[1:], "--format", "jobset", *how).stdout)[1]) for how in ([], ["--with-tls"])]
        self.assertGreater(limits[0], plain["busy_processors_per_reducer"])
        self.assertGreater(limits[1], tls["busy_processors_per_reducer"])

    def test_the_table_in_the_docs_matches_the_program(self):
        rows = re.findall(r"^\| `(--worker-type [^`]+)` \| (.+) \|$", (ROOT / "docs/guides/size.md").read_text(), re.MULTILINE)
        self.assertGreaterEqual(len(rows), 7)
        for options, figures in rows:
            plan = self.json_of("--workers", "8", *options.split())
            even = plan["cost"]["break_even_share"]
            computed = [str(plan["reducers"]), f"{plan['coverage']:.2f}", f"{plan['speedup']:.2f}", f"{plan['speedup_flat_ring']:.2f}",
                        f"{100 * plan['cost']['extra_share']:.1f} %", "never" if even is None else f"{100 * even:.0f} %"]
            self.assertEqual(figures.split(" | "), computed, options)

    def test_a_negative_verdict_is_exit_0(self):
        self.assertIn("no gain", self.plan("--workers", "2", "--worker-gbps", "100", "--provider", "gcp").stdout)
        never = self.plan("--workers", "8", "--worker-type", "p5.48xlarge", "--reducer-type", "c8gn.48xlarge").stdout
        self.assertTrue(never.startswith("43 x c8gn.48xlarge"), never)
        self.assertIn("does not pay", never)
        self.assertIn("NCCL 2.28.3 and newer", " ".join(self.plan("--workers", "8", "--worker-type", "a2-megagpu-16g").stdout.split()))

    def test_a_bad_option_is_exit_64_and_one_line(self):
        for arguments in (["--workers", "0", "--worker-gbps", "1"], ["--workers", "8"], ["--workers", "8", "--worker-gbps", "100"],
                          ["--workers", "8", "--worker-gbps", "nan", "--provider", "gcp"], [*EIGHT[1:], "--headroom", "2"],
                          [*EIGHT[1:], "--slow-worker", "0"], [*EIGHT[1:], "--slow-worker=-1"], [*EIGHT[1:], "--slow-worker", "1e18"],
                          [*EIGHT[1:], "--exposed", "30"], [*EIGHT[1:], "--exposed=-0.1"], [*EIGHT[1:], "--exposed", "nan"],
                          [*EIGHT[1:], "--reducers", "1000001"], [*EIGHT[1:], "--format", "yaml"], [*EIGHT[1:], "--format", "jobset", "--name", "A_b"],
                          ["--workers", "8", "--worker-type", "p4d.24xlarge", "--format", "gcloud"],
                          ["--workers", "65536", "--worker-gbps", "1e6", "--reducer-gbps", "0.001", "--format", "jobset"],
                          ["--workers", "8", "--worker-type", "p4d.24xlarge", "--reducer-type", "x; rm -rf /", "--reducer-gbps", "1"]):
            done = self.plan(*arguments, expect=64)
            self.assertEqual((done.stdout, done.stderr.count("\n")), ("", 1), done.stderr)
        self.assertIn("n1-highcpu-16", self.plan("--workers", "8", "--worker-gbps", "1", "--reducer-type", "n1-higcpu-16", expect=64).stderr)
        nan = self.plan("--workers", "8", "--worker-gbps", "nan", "--provider", "gcp", expect=64).stderr
        self.assertIn("--worker-gbps nan: must be 0 to 1e+06", nan)
        self.assertIn("[0 to 1e+06]", " ".join(self.run_sluice("plan", "--help").stdout.split()))

    def test_the_architecture_option_selects_the_reducer_type(self):
        aws_job = ["--workers", "8", "--worker-type", "p3dn.24xlarge"]
        chosen = {arch: self.json_of(*aws_job, *(["--arch", arch] if arch else [])) for arch in ("", "x86_64", "arm64", "any")}
        self.assertEqual({arch: plan["reducer"]["arch"] for arch, plan in chosen.items() if arch != "any"},
                         {"": "x86_64", "x86_64": "x86_64", "arm64": "arm64"})
        self.assertEqual(chosen["any"]["reducer"]["type"], chosen["any"]["candidates"][0]["type"])
        self.assertLess(chosen["any"]["cost"]["reducers_usd_per_hour"], chosen[""]["cost"]["reducers_usd_per_hour"])
        self.assertTrue(any("emulator" in warning for warning in chosen["arm64"]["warnings"]))
        self.assertFalse(any("emulator" in warning for warning in chosen[""]["warnings"]))
        self.assertIn("--arch any", self.plan("--workers", "8", "--worker-type", "Standard_ND96isr_H100_v5", "--arch", "arm64", expect=64).stderr)

    def test_a_user_table_overrides_the_embedded_table(self):
        table = self.write("prices.csv", '# ours\nprovider,type,role,gbps,usd_per_hour,note\ngcp,n1-highcpu-16,reducer,32,"0.25","with, a contract"\nus,rack,reducer,200,1.5,\n')
        mine = self.json_of(*EIGHT[1:], "--prices", table)
        self.assertEqual((mine["reducer"]["usd_per_hour"], mine["workers"]["usd_per_hour"]), (0.25, 29.3871))
        rack = self.json_of("--workers", "8", "--worker-gbps", "100", "--reducer-type", "rack", env={"SLUICE_PRICES": str(table)})
        self.assertEqual((rack["reducers"], rack["reducer"]["provider"]), (4, "us"))
        table.write_text("provider,type,role,gbps\naws,a,reducer,ten\n")
        done = self.expect_error(78, f'{table}:2:15: "ten" is not a bandwidth', *EIGHT, "--prices", table)
        self.assertEqual(done.stderr.count("\n"), 1)
        self.plan(*EIGHT[1:], "--prices", self.folder / "none.csv", expect=78)

    def test_the_variable_of_the_reducer_list_does_not_set_the_count(self):
        self.assertEqual(self.json_of(*EIGHT[1:], env={"SLUICE_REDUCERS": "a:7470,b:7470"})["reducers"], 25)

    def vertex_job(self, training="python, train.py"):
        """Returns what the script passes to gcloud: its arguments and the configuration."""
        self.add_fake_tool("gcloud", 'printf "%s\\n" "$@"\n')
        script = f"cd {self.folder}\n" + self.run_sluice(*EIGHT, "--format", "gcloud", "--name", "big-job").stdout
        filled = {"REGION": "r1", "WORKER_IMAGE": "w:1", "REDUCER_IMAGE": "s:2", "TRAINING": training, "KEY_FILE": str(self.folder / "pool.key")}
        for missing in filled:  # nothing starts while a variable is missing
            done = self.bash(script, {key: value for key, value in filled.items() if key != missing}, expect=1)
            self.assertEqual(done.stdout, "")
            self.assertIn(missing, done.stderr)
            self.assertFalse((self.folder / "big-job.yaml").exists())
        called = self.bash(script, filled).stdout.splitlines()
        return called, yaml.safe_load((self.folder / "big-job.yaml").read_text())["workerPoolSpecs"]

    @unittest.skipIf(yaml is None, "needs python-module:yaml: python3-yaml is not installed")
    def test_gcloud_gets_three_pools(self):
        called, pools = self.vertex_job()
        self.assertEqual(called, ["ai", "custom-jobs", "create", "--region=r1", "--display-name=big-job", "--config=big-job.yaml"])
        self.assertEqual([pool["replicaCount"] for pool in pools], [1, 7, 25])
        self.assertEqual([pool["containerSpec"]["imageUri"] for pool in pools], ["w:1", "w:1", "s:2"])
        gpus = {"machineType": "a2-highgpu-8g", "acceleratorType": "NVIDIA_TESLA_A100", "acceleratorCount": 8}
        self.assertEqual([pool["machineSpec"] for pool in pools], [gpus, gpus, {"machineType": "n1-highcpu-16"}])
        self.assertEqual(pools[0]["containerSpec"], pools[1]["containerSpec"])
        conf = dict(line.split("=", 1) for line in (ROOT / "config/nccl.conf").read_text().splitlines() if line and not line.startswith("#"))
        env = {entry["name"]: entry["value"] for entry in pools[0]["containerSpec"]["env"]}
        self.assertEqual(env, conf | {"SLUICE_KEY_FILE": str(self.folder / "pool.key")})

    @unittest.skipIf(yaml is None, "needs python-module:yaml: python3-yaml is not installed")
    def test_the_pools_of_gcloud_run_a_reducer_and_a_worker(self):
        _, pools = self.vertex_job(training='sh, -c, "echo $SLUICE_REDUCERS with $SLUICE_KEY_FILE", sh')
        self.make_key()
        port = self.reserve_port()
        cluster = {"workerpool0": ["127.0.0.1:2222"], "workerpool1": ["127.0.0.1:2223"], "workerpool2": [f"127.0.0.1:{port}"]}

        def launch(pool):
            container = pools[pool]["containerSpec"]
            self.assertEqual(container["command"][0], "sluice")
            spec = json.dumps({"cluster": cluster, "environment": "cloud", "task": {"type": f"workerpool{pool}", "index": 0}})
            return container["command"][1:], {entry["name"]: entry["value"] for entry in container["env"]} | {"CLUSTER_SPEC": spec}

        command, env = launch(2)
        reducer = self.start(*command, env=env)
        until("the reducer listens", lambda: "listens on" in reducer.stderr() or reducer.ended())
        self.assertIn(f"listens on *:{port}", reducer.stderr())
        self.status(f"127.0.0.1:{port}", "--key-file", self.folder / "pool.key")
        self.expect_drained(reducer)
        for pool in (0, 1):
            command, env = launch(pool)
            self.assertEqual(self.run_sluice(*command, env=env).stdout, f"127.0.0.1:{port} with {self.folder}/pool.key\n")

    def test_sbatch_starts_reducers_then_the_training(self):
        log = self.folder / "log"
        self.add_fake_tool("scontrol", '[[ "$*" == "show hostnames cpu[1-2]" ]] && printf "cpu1\\ncpu2\\n"\n')
        self.add_fake_tool("scancel", f'echo "scancel $*" >>{log}\nread -r pid <{self.folder}/step && kill "$pid"\n')
        self.add_fake_tool("srun", f'echo "srun $* reducers=${{SLUICE_REDUCERS:-}} plugin=${{NCCL_NET_PLUGIN:-}} $NCCL_COLLNET_ENABLE $NCCL_COLLNET_NODE_THRESHOLD $NCCL_NET_PLUGIN_REF_COUNT" >>{log}\n[[ "$1" == --het-group=1 ]] || exit 7\n'
                          f'echo $$ >{self.folder}/step\nexec tail -f /dev/null\n')
        self.add_fake_tool("sluice", f'echo "sluice $*" >>{log}\n[[ $1 != status ]] || [[ -s {self.folder}/step ]]\n')
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
        self.assertRegex(reducers, r"--lanes-per-session 2 --memory-limit \d+G ")
        # Except for these numbers it is the script of deploy/slurm.
        shipped = (ROOT / "deploy/slurm/hetjob.sbatch").read_text().splitlines()
        self.assertLessEqual(len(set(shipped) - set(script.splitlines())), 6)
        self.assertIn("srun --het-group=0 train --epochs 3 reducers=cpu1:7470,cpu2:7470 plugin=sluice 1 3 1", lines)
        self.assertIn("scancel --signal=INT 6.0", lines)
        self.assertEqual(list(self.folder.glob(".sluice-*")), [], "the key was not removed")

    @unittest.skipIf(yaml is None, "needs python-module:yaml: python3-yaml is not installed")
    def test_jobset_waits_for_the_reducers_it_names(self):
        parsed, budget = yaml.safe_load_all(self.run_sluice(*EIGHT, "--format", "jobset", "--name", "big-job").stdout)
        self.assertEqual((budget["metadata"]["name"], budget["spec"]["minAvailable"]), ("big-job-reducers", 24))
        reducers, workers = parsed["spec"]["replicatedJobs"]
        self.assertEqual(workers["dependsOn"], [{"name": "reducers", "status": "Ready"}])
        self.assertEqual(parsed["spec"]["successPolicy"]["targetReplicatedJobs"], ["workers"])
        self.assertEqual((reducers["template"]["spec"]["parallelism"], workers["template"]["spec"]["completions"]), (25, 8))
        container = workers["template"]["spec"]["template"]["spec"]["containers"][0]
        self.assertEqual(container["resources"]["limits"], {"nvidia.com/gpu": "8"})
        env = {entry["name"]: entry.get("value") for entry in container["env"]}
        self.assertEqual(env["SLUICE_REDUCER_COUNT"], "25")
        self.assertLessEqual({"--nnodes=8", "--nproc-per-node=8"}, set(container["command"]))
        self.assertEqual(parsed["metadata"]["name"], "big-job")
        pods = [job["template"]["spec"]["template"]["spec"] for job in (reducers, workers)]
        self.assertEqual([pod["nodeSelector"] for pod in pods],
                         [{"node.kubernetes.io/instance-type": "n1-highcpu-16"}, {"node.kubernetes.io/instance-type": "a2-highgpu-8g"}])
        env = {entry["name"]: entry.get("value") for entry in pods[0]["containers"][0]["env"]}
        self.assertEqual((env["SLUICE_LANES_PER_SESSION"], env["SLUICE_MEMORY_LIMIT"][-1]), ("2", "G"))
        # As many reducers as the template has workers, and the reverse.
        few, _ = yaml.safe_load_all(self.run_sluice("plan", "--workers", "2", "--worker-gbps", "1", "--reducer-gbps", "1", "--reducers", "4", "--format", "jobset").stdout)
        self.assertEqual([job["template"]["spec"]["completions"] for job in few["spec"]["replicatedJobs"]], [4, 2])

    @unittest.skipIf(yaml is None, "needs python-module:yaml: python3-yaml is not installed")
    def test_kustomize_patches_the_set_of_reducers(self):
        text = self.run_sluice(*EIGHT, "--format", "kustomize").stdout
        overlay = yaml.safe_load(text)
        self.assertEqual(overlay["replicas"], [{"name": "sluice-reducer", "count": 25}])
        patch = yaml.safe_load(overlay["patches"][0]["patch"])
        self.assertEqual(patch["spec"]["template"]["spec"]["nodeSelector"], {"node.kubernetes.io/instance-type": "n1-highcpu-16"})
        self.assertEqual(overlay["resources"], ["../overlays/tcp"])
        container, = patch["spec"]["template"]["spec"]["containers"]
        self.assertEqual({entry["name"] for entry in container["env"]}, {"SLUICE_LANES_PER_SESSION", "SLUICE_MEMORY_LIMIT"})


if __name__ == "__main__":
    main()
