"""Tests the Debian packages: lintian, and installation, use, reinstallation and removal on a system with only their
dependencies."""

import os
import re
import shutil

import deploy_case
from built_packages import base_root, create, field, packages
from deploy_case import DeployTest, environment, main, need, program, until, version

# Stands in for systemd's: /tmp/running has the running units, and the only enabled unit is the service.
SYSTEMCTL = """#!/bin/sh
echo "$*" >>/tmp/systemctl.log
case " $* " in
  *" list-units "*) sed "s/$/ loaded active running Sluice reducer/" /tmp/running ;;
  *" is-enabled "*" sluice-reducer.service "*) echo enabled ;;
  *" is-enabled "* | *" is-active "*) exit 1 ;;
  *" stop "*) : >/tmp/running ;;
esac
"""

NAMES = ["libnccl-net-sluice", "libsluice-dev", "libsluice0", "sluice-reducer", "sluice-tools"]


class Packages(DeployTest):
    @classmethod
    def setUpClass(cls):
        cls.debs = packages(fresh=True)

    def chroot(self, *arguments, **options):
        options.setdefault("env", environment({"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "DEBIAN_FRONTEND": "noninteractive"}))
        return self.command("chroot", self.root, *arguments, **options)

    def files(self):
        """Returns all paths of the root without the data of dpkg, apt and ldconfig."""
        output = self.command("find", self.root, "-xdev", "-printf", "/%P\n").stdout.splitlines()
        return {path for path in output if not re.match(r"/(var/(lib/(dpkg|apt|systemd)|log|cache)|tmp|etc/ld\.so\.cache)(/|$)", path)}

    def test_names_and_versions(self):
        self.assertEqual([name for name in self.debs if name != "libsluice-tls"], NAMES)
        for name, deb in self.debs.items():
            self.assertEqual((field(deb, "Package"), field(deb, "Version")), (name, version()))
            sizes = [int(line.split()[2]) for line in self.command("dpkg-deb", "-c", deb).stdout.splitlines() if line.startswith("-")]
            self.assertLess(abs(int(field(deb, "Installed-Size")) - sum(sizes) // 1024), 200, f"{name}: KiB; links are not files")
        changelog = (deploy_case.ROOT / "deploy" / "packaging" / "debian" / "changelog").read_text()
        self.assertTrue(changelog.startswith(f"sluice ({version()}) "), "the first entry of the changelog is for this version")
        for deb in self.debs.values():
            for name in ("libnccl-net.so", "librccl-net.so"):
                self.assertNotIn(f"/usr/lib/{name}", self.command("dpkg-deb", "-c", deb).stdout, "other packages use this name")

    def test_a_second_run_makes_the_same_bytes(self):
        create(self.folder / "again")
        again = {path.name: path.read_bytes() for path in (self.folder / "again").glob("*.deb")}
        self.assertEqual(sorted(again), sorted(deb.name for deb in self.debs.values()))
        self.assertEqual([deb.name for deb in self.debs.values() if again[deb.name] != deb.read_bytes()], [])

    def test_lintian(self):
        need("lintian")
        output = self.command("lintian", "--allow-root", "--fail-on", "error,warning", *self.debs.values(), timeout=120).stdout
        self.assertNotRegex(output, r"(?m)^[EW]: ")

    def test_install_use_reinstall_remove_and_purge(self):
        base = base_root(self.debs)
        self.root = self.folder / "root"
        self.command("cp", "-a", "--reflink=auto", base, self.root)
        before = self.files()
        self.command("cp", *self.debs.values(), self.root / "tmp")
        debs = [f"/tmp/{deb.name}" for deb in self.debs.values()]
        self.chroot("dpkg", "-i", *debs)
        self.assertEqual(self.chroot("dpkg", "--audit").stdout, "")

        self.assertTrue(self.chroot("sluice", "--version").stdout.startswith(f"sluice {version()}\n"))
        self.assertTrue(self.chroot("sluice-gpu-bench", "--version").stdout.startswith(f"sluice {version()}\n"))
        self.assertEqual(self.command("man", "-M", self.root / "usr/share/man", "-w", "sluice-reducer").stdout.strip(),
                         str(self.root / "usr/share/man/man1/sluice-reducer.1.gz"))
        enabled = self.root / "etc/systemd/system/multi-user.target.wants/sluice-reducer.service"
        self.assertTrue(enabled.is_symlink(), "the unit is enabled")
        self.chroot("bash", "-c", "source /usr/share/bash-completion/completions/sluice && complete -p sluice")
        self.use_programs_and_plugin()
        examples = self.root / "usr/share/doc/sluice-reducer/examples"
        self.assertEqual(sorted(str(path.relative_to(examples)) for path in examples.rglob("*") if path.is_file()),
                         ["cloudwatch/agent.json", "cloudwatch/otel.yaml", "cloudwatch/scrape.yml", "grafana/sluice.json", "models.conf", "prometheus/rules.yml",
                          "prometheus/scrape.yml", "rdma.conf", *(f"slurm/{name}.sbatch" for name in ("auto", "hetjob", "pool", "train"))])
        # The addresses of the package are in the file that its comments describe, and nowhere else.
        done = self.chroot("sluice", "reducer", "--config", "/etc/sluice/reducer.toml", "--print-config").stdout
        self.assertRegex(done, r'(?m)^listen = "\*:7470" +# /etc/sluice/reducer\.toml:\d+:10\n(.*\n)+?http_listen = "127\.0\.0\.1:9470"')
        self.assertNotRegex((self.root / "etc/default/sluice-reducer").read_text(), r"(?m)^[^#\n]")

        # A reinstallation keeps the configuration of the operator.
        (self.root / "etc/default/sluice-reducer").write_text("SLUICE_LANES=3\n")
        enabled.unlink()  # systemctl disable
        self.chroot("dpkg", "-i", *debs)
        self.assertEqual((self.root / "etc/default/sluice-reducer").read_text(), "SLUICE_LANES=3\n")
        self.assertFalse(enabled.is_symlink(), "the unit stays disabled")
        self.chroot("sluice", "keygen", "--out", "/etc/sluice/pool.key")

        self.chroot("dpkg", "--remove", *self.debs)
        self.assertFalse((self.root / "usr/bin/sluice").exists())
        self.assertTrue((self.root / "etc/default/sluice-reducer").exists())
        self.assertTrue((self.root / "etc/sluice/pool.key").exists())
        self.chroot("dpkg", "--purge", *self.debs)
        self.assertEqual(self.files() ^ before, set())

    def test_removal_stops_all_reducers_and_installation_starts_them_again(self):
        base = base_root(self.debs)
        self.root = self.folder / "root"
        self.command("cp", "-a", "--reflink=auto", base, self.root)
        deb = self.debs["sluice-reducer"]
        self.command("cp", deb, self.root / "tmp")
        before = self.files()
        (self.root / "usr/local/sbin/systemctl").write_text(SYSTEMCTL)
        (self.root / "usr/local/sbin/systemctl").chmod(0o755)
        (self.root / "run/systemd/system").mkdir(parents=True)
        calls, running = self.root / "tmp/systemctl.log", self.root / "tmp/running"
        units = ["sluice-reducer.service", "sluice-reducer@card0.service"]

        def dpkg(*arguments, runs=()):
            """Runs dpkg while these units run: the units that it started and stopped."""
            running.write_text("".join(f"{unit}\n" for unit in runs))
            calls.write_text("")
            self.chroot("dpkg", *arguments, env=environment({"PATH": "/usr/local/sbin:/usr/sbin:/usr/bin:/sbin:/bin"}))
            done = {"start": [], "stop": []}
            for line in calls.read_text().splitlines():
                words = [word for word in line.split() if not word.startswith("--")]
                done.get(words[0], []).extend(words[1:])
            return {verb: sorted(set(names)) for verb, names in done.items()}

        install = ("--force-depends", "-i", f"/tmp/{deb.name}")
        self.assertEqual(dpkg(*install), {"start": units[:1], "stop": []})
        self.assertEqual(dpkg(*install, runs=units), {"start": [], "stop": []}, "an upgrade leaves running reducers alone")
        self.assertEqual(dpkg("--remove", "sluice-reducer", runs=units), {"start": [], "stop": units})
        self.assertEqual(dpkg(*install), {"start": units, "stop": []})
        self.assertEqual(dpkg("--remove", "sluice-reducer"), {"start": [], "stop": []})
        self.assertEqual(dpkg(*install), {"start": units[:1], "stop": []}, "an instance that did not run stays stopped")
        # What systemd creates for the unit: logs go, models stay.
        for folder in ("var/log/private/sluice-reducer", "var/log/private/sluice-reducer@card0", "var/lib/private/sluice-reducer"):
            (self.root / folder).mkdir(parents=True)
        enabled = self.root / "etc/systemd/system/multi-user.target.wants/sluice-reducer@card0.service"
        enabled.symlink_to("/lib/systemd/system/sluice-reducer@.service")
        self.assertEqual(dpkg("--purge", "sluice-reducer", runs=units), {"start": [], "stop": units})
        self.assertFalse(enabled.is_symlink())
        self.assertEqual(list((self.root / "var/log/private").iterdir()), [])
        self.assertTrue((self.root / "var/lib/private/sluice-reducer").is_dir())
        self.assertEqual(dpkg(*install), {"start": units[:1], "stop": []})
        dpkg("--purge", "sluice-reducer")
        left = self.files() - before
        self.assertEqual({path for path in left if "sluice" in path}, {"/var/lib/private/sluice-reducer"})

    def use_programs_and_plugin(self):
        """Runs a reducer of the installed program for workers of this machine, and finds the installed plugin by its name."""
        port_file = self.root / "tmp/port"
        errors = self.folder / "stderr"
        reducer = self.start_process(["chroot", self.root, "sluice", "reducer", "--listen", "127.0.0.1:0", "--port-file", "/tmp/port"], errors)
        until("the reducer listens", lambda: port_file.exists() or reducer.poll() is not None)
        self.assertIsNone(reducer.poll(), errors.read_text())
        address = f"127.0.0.1:{port_file.read_text().strip()}"
        output = self.command(program(), "bench", "allreduce", "-b", "64K", "-e", "1M", "-f", "4", "--workers", "2", "--connect", address).stdout
        self.assertRegex(output, r"# Out of bounds values : 0 OK")
        output = self.chroot("sluice", "check", "plugin", env=environment({"SLUICE_REDUCERS": address, "NCCL_COLLNET_ENABLE": "1"})).stdout
        self.assertRegex(output, r"plugin +libnccl-net-sluice\.so: ")
        plugin = self.root / "usr/lib/libnccl-net-sluice.so"
        for name in ("librccl-net-sluice.so", "libnccl-net-sluice/librccl-net.so", "libnccl-net-sluice/libnccl-net.so"):
            self.assertTrue((plugin.parent / name).samefile(plugin), name)
        self.assertRegex(output, r"reduction +\d+ floats, correct")
        self.terminate(reducer, errors)


class Parts(DeployTest):
    def test_the_artefacts_leave_out_what_the_build_lacks(self):
        """Without building: OpenSSL is one of the packages that may be missing."""
        need("cmake", "ninja", "pkg-config")
        for have, expected in (("OFF", []), ("ON", ["lib/libsluice_tls.so", "lib/static_tls/libsluice_tls.so"])):
            build = self.folder / have
            self.command("cmake", "-G", "Ninja", "-S", deploy_case.ROOT, "-B", build, "-DCMAKE_BUILD_TYPE=Release", "-DSLUICE_TESTS=OFF", f"-DSLUICE_TLS={have}")
            output = self.command("ninja", "-C", build, "-n", "sluice_artefacts").stdout
            self.assertEqual(sorted(set(re.findall(r"Linking CXX shared module (\S+tls\S+)", output))), expected)
            self.assertIn("bin/sluice-gpu-bench", output)

    def test_images_are_made_of_a_build_with_all_programs(self):
        """quickstart.sh builds less. The tools only record their calls."""
        for name in ("deploy/docker", "scripts"):
            shutil.copytree(deploy_case.ROOT / name, self.folder / name)
        for name in ("VERSION", "deploy/project.env"):
            shutil.copy(deploy_case.ROOT / name, self.folder / name)
        tools = self.folder / "tools"
        tools.mkdir()
        for name in ("buildah", "cmake", "cpack"):
            (tools / name).write_text(f'#!/bin/sh\necho "$(basename "$0") $*" >>{self.folder}/calls\n')
            (tools / name).chmod(0o755)
        build = (self.folder / "deploy/docker/build.sh", "--tool", "buildah", "reducer")
        env = environment({"PATH": f"{tools}:{os.environ['PATH']}"})
        self.assertIn("build/release does not exist; run ./quickstart.sh --build-only", self.command(*build, expect=69, env=env).stdout)
        (self.folder / "build/release").mkdir(parents=True)
        (self.folder / "build/release/CMakeCache.txt").touch()
        self.command(*build, env=env)
        calls = (self.folder / "calls").read_text().splitlines()
        self.assertEqual([call.split()[0] for call in calls], ["cmake", "cpack", "buildah"])
        self.assertRegex(calls[0], r"/build/release --parallel \d+ --target sluice_artefacts$")



if __name__ == "__main__":
    main()
