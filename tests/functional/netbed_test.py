"""bench/netbed: a bed that stays from command to command, and touches nothing that is not its own. Exit 77 where no bed can be made."""

import json
import os
import subprocess
import sys
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "bench/netbed"), str(ROOT / "tests/capabilities")]

from bed import ALLOWED, Bed, command  # noqa: E402
from capabilities import enter_namespaces, require  # noqa: E402

NAME = f"t{os.getpid()}"
DEADLINE_S = 60

SEND = """import socket, sys
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
for _ in range(int(sys.argv[2])): s.sendto(bytes(1000), (sys.argv[1], 9))
"""


def netbed(*words, expect=0):
    done = subprocess.run([sys.executable, "-B", ROOT / "bench/netbed/netbed.py", words[0], "--name", NAME, *map(str, words[1:])], capture_output=True, text=True,
                          timeout=DEADLINE_S, check=False)
    assert done.returncode == expect, f"{words}: {done.returncode}\n{done.stdout}{done.stderr}"
    return done.stdout + done.stderr


def namespaces(beginning):
    return sorted(path.name for path in Path("/run/netns").iterdir() if path.name.startswith(beginning)) if Path("/run/netns").exists() else []


class Netbed(unittest.TestCase):
    def setUp(self):
        self.addCleanup(self.clean)

    def clean(self):
        state = Path(f"/run/sluice-netbed/{NAME}.json")
        if state.exists():
            netbed("down")
        for name in namespaces(f"sluice-{NAME}-"):
            command("ip", "netns", "del", name)

    def stat(self):
        rows = [line.split() for line in netbed("stat").splitlines()[1:]]
        return {(row[0], row[1]): {"rate": row[2], "sent": int(row[3]), "drops": int(row[4]), "overlimits": int(row[5])} for row in rows}

    def test_up_exec_stat_rate_down(self):
        told = netbed("up", "--workers", 2, "--reducers", 2, "--rate", "100mbit", "--host-rate", "w1=50mbit", "--mtu", 1400)
        addresses = {line.split()[0]: line.split()[1] for line in told.splitlines()[1:]}
        self.assertEqual(list(addresses), ["w0", "w1", "r0", "r1", "ctl"])
        self.assertIn("up already", netbed("up", expect=1))
        self.assertEqual(netbed("exec", "w0", "sysctl", "-n", "net.ipv4.tcp_congestion_control"), "cubic\n")
        netbed("exec", "w0", "sh", "-c", "exit 7", expect=7)
        self.assertIn("there are: w0 w1", netbed("exec", "w7", "true", expect=1))
        self.assertEqual(json.loads(netbed("exec", "r1", "ip", "-j", "link", "show", "dev", "eth0"))[0]["mtu"], 1400)

        # More than the limiter lets through in one burst, so it had to hold some of it back at both ends.
        netbed("exec", "w1", sys.executable, "-c", SEND, addresses["w0"], 500)
        after = self.stat()
        for end in (("w1", "host"), ("w0", "switch")):
            self.assertGreater(after[end]["sent"], 400_000, end)
            self.assertLess(after[end]["sent"], 600_000, end)
        self.assertGreater(after["w1", "host"]["overlimits"], 0)
        self.assertLess(after["r0", "switch"]["sent"], 50_000)
        self.assertEqual({key: row["rate"] for key, row in after.items() if key[1] == "host"},
                         {("w0", "host"): "100mbit", ("w1", "host"): "50mbit", ("r0", "host"): "100mbit", ("r1", "host"): "100mbit", ("ctl", "host"): "0"})

        netbed("rate", "--reducer-rate", "20mbit", "--host-rate", "w0=0")
        rates = {key: row["rate"] for key, row in self.stat().items()}
        self.assertEqual([rates[host, "switch"] for host in addresses], ["0", "50mbit", "20mbit", "20mbit", "0"])
        self.assertIn("rate 20Mbit", netbed("exec", "r0", "tc", "qdisc", "show", "dev", "eth0"))
        self.assertNotIn("tbf", netbed("exec", "w0", "tc", "qdisc", "show", "dev", "eth0"))

        netbed("down")
        self.assertEqual(namespaces(f"sluice-{NAME}-"), [])
        self.assertIn("no bed", netbed("down", expect=1))

    def test_bad_options_are_named(self):
        self.assertIn("fast", netbed("up", "--rate", "fast", expect=2))
        self.assertIn("HOST=RATE", netbed("up", "--host-rate", "w1", expect=2))
        self.assertIn("w9", netbed("up", "--host-rate", "w9=1mbit", expect=1))
        self.assertEqual(namespaces(f"sluice-{NAME}-"), [])

    def test_what_took_the_name_of_its_own_is_left_alone(self):
        netbed("up", "--workers", 2)
        other = f"sluice-{NAME}-w1"
        command("ip", "netns", "del", other)
        command("ip", "netns", "add", other)
        for words in (("exec", "w0", "true"), ("stat",), ("rate", "--rate", "1mbit")):
            self.assertIn(f"{other} is not its own", netbed(*words, expect=1))
        self.assertIn(other, netbed("down", expect=1))
        self.assertEqual(namespaces(f"sluice-{NAME}-"), [other])

    def test_what_has_the_name_before_is_left_alone(self):
        other = f"sluice-{NAME}-w1"
        command("ip", "netns", "add", other)
        self.assertIn(other, netbed("up", "--workers", 2, expect=1))
        self.assertEqual(namespaces(f"sluice-{NAME}-"), [other])
        self.assertIn("no bed", netbed("down", expect=1))

    def test_a_congestion_control_that_can_not_be_had_is_an_error(self):
        with self.assertRaises(SystemExit) as caught, Bed(["a"], "1mbit", congestion_control="nosuch"):
            pass
        self.assertIn("nosuch", str(caught.exception))
        self.assertNotIn("nosuch", ALLOWED.read_text(encoding="ascii"))
        self.assertEqual(namespaces(f"sluice{os.getpid()}-"), [])


if __name__ == "__main__":
    enter_namespaces()
    require("network-namespaces")
    unittest.main(verbosity=2)
