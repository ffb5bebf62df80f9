"""What `cmake --install` puts down serves a stranger's CMake project in C: over IPv4, IPv6 and a name."""

import os
import subprocess
from pathlib import Path

from sluice_process import DEADLINE_S, SluiceTest, environment, main, until

BUILD = Path(os.environ["SLUICE_BUILD"])
PROJECT = Path(__file__).parent / "install"


class Install(SluiceTest):
    def command(self, *words, **how):
        done = subprocess.run([*map(str, words)], capture_output=True, text=True, timeout=DEADLINE_S, check=False, **how)
        self.assertEqual(done.returncode, 0, f"{words}\n{done.stdout}{done.stderr}")
        return done.stdout

    def listen(self, host):
        port_file = self.folder / f"port{len(list(self.folder.iterdir()))}"
        running = self.start("reducer", "--listen", f"{host}:0", "--port-file", port_file)
        until(f"a reducer listens on {host}", lambda: port_file.exists() or running.ended())
        self.assertIsNone(running.process.poll(), running.stderr())
        return f"{host}:{port_file.read_text().strip()}"

    def test_a_program_in_c_finds_the_package_and_reduces(self):
        prefix = self.folder / "prefix"
        self.command("cmake", "--install", BUILD, "--prefix", prefix)
        self.assertIn("protocol", self.command(prefix / "bin" / "sluice", "--version"))
        self.command("cmake", "-G", "Ninja", "-S", PROJECT, "-B", self.folder / "user", f"-DCMAKE_PREFIX_PATH={prefix}")
        self.command("cmake", "--build", self.folder / "user")
        program = self.folder / "user" / "mean"
        ipv6 = Path("/proc/net/if_inet6")
        for hosts in (["127.0.0.1", "localhost"], ["[::1]"]):
            if hosts == ["[::1]"] and not (ipv6.exists() and ipv6.read_text().strip()):
                self.skipTest("this host has no IPv6")
            reducers = ",".join(self.listen(host) for host in hosts)
            with self.subTest(reducers):
                ranks = [subprocess.Popen([program, reducers, str(rank), "3"], stdout=subprocess.PIPE, text=True, env=environment())
                         for rank in range(3)]
                for rank in ranks:
                    self.addCleanup(rank.kill)
                for rank in ranks:
                    self.assertEqual(rank.communicate(timeout=DEADLINE_S)[0], "ok 1 1 2\n")


if __name__ == "__main__":
    main()
