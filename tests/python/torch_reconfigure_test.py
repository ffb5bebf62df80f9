"""The backend "sluice" under torch's own interface for elastic jobs: a rank is killed, the others go on, and a new process joins."""

import json
import unittest
from importlib.util import find_spec
from pathlib import Path

from package_test_bed import main
from torch_test_bed import TorchTest

RANK = Path(__file__).with_name("torch_reconfigure_rank.py")
# Without an import of torch, which takes seconds.
RECONFIGURES = "def _reconfigure(" in (Path(find_spec("torch").origin).parent / "distributed" / "distributed_c10d.py").read_text()


@unittest.skipUnless(RECONFIGURES, "this release of torch cannot reconfigure groups")
class TorchReconfigure(TorchTest):
    def start_member(self, name, rank):
        self.members[name] = self.start_script(RANK, NAME=name, RANK=str(rank), WORLD_SIZE="3", STORE=str(self.folder / "store"),
                                               FOLDER=str(self.folder), SLUICE_REDUCERS=self.reducer, MASTER_ADDR="127.0.0.1")

    def write(self, name, line):
        self.members[name].stdin.write(line + "\n")
        self.members[name].stdin.flush()

    def configure(self, number, names):
        """Lets the members make a group, and checks what each prints."""
        for name in names:
            self.write(name, f"configure {number} {names}")
        ranks = range(len(names))
        for rank, name in enumerate(names):
            found = self.read(name)
            print(f"{names}: {name} took {found.pop('seconds'):.3f} s")
            self.assertEqual(found, {"rank": rank, "sum": sum(ranks) + len(ranks), "gathered": list(ranks), "exchanged": list(ranks)})

    def read(self, name):
        line = self.members[name].stdout.readline()
        return json.loads(line) if line else self.fail(self.members[name].communicate()[1])

    def test_ranks_are_lost_and_join(self):
        self.members = {}
        _, self.reducer = self.start_reducer()
        for rank, name in enumerate("abc"):
            self.start_member(name, rank)
        self.configure(1, "abc")
        for name in "ab":
            self.write(name, "reduce")
        self.members["c"].kill()
        for name in "ab":
            self.assertIn("rank 2", self.read(name))
        self.configure(2, "ab")
        self.start_member("d", 2)
        self.configure(3, "abd")
        self.configure(4, "ba")
        self.outputs([self.members[name] for name in "abd"])


if __name__ == "__main__":
    main()
