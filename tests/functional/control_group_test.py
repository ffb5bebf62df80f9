"""A reducer in a control group with limits of memory and CPU time, in a hierarchy of v1 or v2 of this machine."""

import re

import sluice_process
from sluice_process import SluiceTest, main, until

import capabilities  # noqa: E402: sluice_process extends sys.path
import probes  # noqa: E402

MEGABYTE = 1000 * 1000


class ControlGroupTest(SluiceTest):
    def start_inside(self, *arguments, memory=None, cpus=None):
        """Starts a reducer in new control groups. A group cannot be removed before its processes have ended."""
        groups = [self.enterContext(probes.new_control_group(controller, value)) for controller, value in (("memory", memory), ("cpu", cpus)) if value]
        inside = self.folder / "inside"
        inside.write_text("".join(f'echo $$ >"{group}/cgroup.procs" || exit 1\n' for group in groups) + f'exec "{sluice_process.PROGRAM}" "$@"\n')
        port_file = self.folder / "port"
        port_file.unlink(missing_ok=True)
        program, sluice_process.PROGRAM = sluice_process.PROGRAM, "sh"
        try:
            return self.start(str(inside), "reducer", "--listen", "127.0.0.1:0", "--port-file", port_file, *arguments)
        finally:
            sluice_process.PROGRAM = program

    def start_limited(self, *arguments, **limits):
        """The same: (Running, address)."""
        port_file = self.folder / "port"
        reducer = self.start_inside(*arguments, **limits)
        until("the reducer listens", lambda: port_file.exists() or reducer.ended())
        self.assertFalse(reducer.ended(), reducer.stderr())
        return reducer, f"127.0.0.1:{port_file.read_text().strip()}"

    def test_memory_limit_and_lanes_follow_the_group(self):
        reducer, address = self.start_limited(memory=300 * MEGABYTE, cpus=0.5)
        status = self.status(address)
        self.assertLessEqual(status["memory"]["limit_bytes"], 150 * MEGABYTE)
        self.assertGreater(status["memory"]["limit_bytes"], 149 * MEGABYTE)  # a limit is whole pages
        self.assertEqual(status["lanes"], 1)
        self.assertRegex(reducer.stderr(), r"control groups limit this process to (300|299) MB of memory \(/\S+\) and 0\.5 CPUs \(/\S+\)")
        self.run_sluice("bench", "allreduce", "-b", "64K", "-e", "1M", "-f", "4", "--workers", "2", "--connect", address)
        # What would need more than the group has is refused, instead of the kernel killing the reducer.
        done = self.expect_error(69, re.compile("memory"), "bench", "allreduce", "-b", "64K", "-e", "64K", "--workers", "2", "--connect", address,
                                 env={"SLUICE_WINDOW": "256M"})
        self.assertNotIn("lost", done.stderr)
        self.expect_drained(reducer)

    def test_a_limit_beyond_the_group_is_refused(self):
        reducer = self.start_inside("--memory-limit", "1G", memory=300 * MEGABYTE)
        self.assertEqual(reducer.wait(), 78, reducer.stderr())
        self.assertRegex(reducer.stderr(), r"sluice: --memory-limit is 1073 MB, but this process may use only (300|299) MB \(/\S+\)\n")
        reducer, _ = self.start_limited("--memory-limit", "200M", memory=300 * MEGABYTE)
        self.expect_drained(reducer)


if __name__ == "__main__":
    capabilities.require("control-groups")
    main()
