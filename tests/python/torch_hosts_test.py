"""The backend "sluice" without reducers on two hosts whose names resolve to 127.0.1.1, as Debian and Ubuntu configure them: where the ranks meet, and who shares memory.

The hosts are network namespaces. Exit code 77 where this process cannot create them."""

import os
import subprocess
import sys
import unittest
from pathlib import Path

from package_test_bed import ROOT, TwoHostsTest, ip, main, variables

sys.path.insert(0, str(ROOT / "tests/capabilities"))

from capabilities import enter_namespaces, require  # noqa: E402

RANK = Path(__file__).with_name("torch_conformance_rank.py")

class TorchHosts(TwoHostsTest):
    def setUp(self):
        super().setUp()
        self.file = self.write("hosts", "127.0.0.1 localhost\n127.0.1.1 worker\n")
        for host in self.hosts:
            ip("route", "add", "default", "dev", "eth0", host=host)

    def start_host(self, index, **extra):
        environment = {name: value for name, value in variables(WORLD_SIZE="2", RANK=str(index), SLUICE_REDUCERS="none", **extra).items()
                       if name != "GLOO_SOCKET_IFNAME"}
        return self.start_on_host(index, "worker", self.file, [RANK, "sluice", "once"], environment)

    def meet(self, **extra):
        self.assertEqual(self.outputs([self.start_host(index, **extra) for index in range(2)]), ["0\n"] * 2)

    def test_ranks_that_only_share_a_file_meet(self):
        self.meet(STORE=str(self.folder / "store"))

    def test_ranks_that_know_the_address_of_the_first_meet(self):
        self.meet(INIT="tcp://10.11.12.1:29500")

    def test_ranks_meet_where_only_link_local_addresses_are(self):
        for host in self.hosts:
            ip("-4", "address", "flush", "dev", "eth0", host=host)
        self.meet(INIT="env://", MASTER_ADDR="fe80::1%eth0", MASTER_PORT="29500")

    def test_the_same_number_in_two_user_namespaces_shares_no_memory(self):
        code = "import os; from sluice.torch import meeting; print(os.geteuid(), meeting.memory_id())"
        command = [sys.executable, "-B", "-c", code]
        environment = variables(SLUICE_HOSTS="auto")
        outputs = [subprocess.run([*entry, *command], check=True, timeout=60, capture_output=True, text=True, env=environment).stdout.split(maxsplit=1)
                   for entry in ([], [], ["unshare", "--user", "--map-root-user"])]
        self.assertEqual([user for user, _ in outputs], ["0"] * 3)
        ids = [memory for _, memory in outputs]
        self.assertEqual(ids[0], ids[1])
        self.assertNotEqual(ids[0], ids[2])


if __name__ == "__main__":
    enter_namespaces()
    require("network-namespaces")
    main()
