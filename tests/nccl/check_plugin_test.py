"""`sluice check plugin`: what it reports about the NCCL libraries of the host."""

import shutil

from nccl_player import PlayerTest, library_beside_plugin, main

OTHER_PLUGINS = {"NCCL_GPUDIRECTTCPX_CTRL_DEV": "GPUDirect-TCPX", "NCCL_FASTRAK_CTRL_DEV": "GPUDirect-TCPXO", "NCCL_GIB_ENABLE": "gIB (RoCE of Google Cloud)"}


class CheckPlugin(PlayerTest):
    def setUp(self):
        super().setUp()
        self.start_pool(1)
        self.library = library_beside_plugin("libsluice_played_nccl.so")

    def check(self, release, *arguments, **variables):
        env = {"SLUICE_REDUCERS": self.addresses[0], "SLUICE_IFNAME": "=lo", "SLUICE_NET": "always", "PLAYED_NCCL_RELEASE": str(release)}
        text = self.run_sluice("check", "plugin", *(arguments or ("--nccl", self.library)), env=env | variables).stdout
        self.assertIn("reduction ", text)
        return [line for line in text.splitlines() if line.startswith(("nccl", "  note"))]

    def test_names_what_applies_to_the_release(self):
        for release, expected in ((21903, ["2.19.3 is older than 2.20.0"]),
                                  (22005, ["does not call the plugin's tuner"]),
                                  (22105, ["after the last communicator"]),
                                  (22203, ["NCCL_COMM_SPLIT_SHARE_RESOURCES=1", "2.30.7 or newer"]),
                                  (22501, ["NCCL_COMM_SPLIT_SHARE_RESOURCES=1", "2.30.7 or newer", "ncclCommAbort hangs"]),
                                  (22705, ["NCCL_COMM_SPLIT_SHARE_RESOURCES=1", "2.30.7 or newer", "drops the errors"]),
                                  (22809, ["NCCL_COMM_SPLIT_SHARE_RESOURCES=1", "2.30.7 or newer", "NCCL_NET_PLUGIN_REF_COUNT=1"]),
                                  (23007, ["NCCL_COMM_SPLIT_SHARE_RESOURCES=1", "set SLUICE_REDUCERS on all nodes"]),
                                  (24001, ["2.40.1 is newer than 2.32.3", "NCCL_COMM_SPLIT_SHARE_RESOURCES=1", "set SLUICE_REDUCERS on all nodes"])):
            with self.subTest(release):
                first, *notes = self.check(release)
                self.assertIn(f"{self.library}: {release // 10000}.{release // 100 % 100}.{release % 100}", first)
                self.assertEqual(len(notes), len(expected), notes)
                for note, text in zip(notes, expected):
                    self.assertIn(text, note)

    def test_leaves_out_what_is_set(self):
        notes = self.check(22809, NCCL_NET_PLUGIN_REF_COUNT="1", NCCL_COMM_SPLIT_SHARE_RESOURCES="1")[1:]
        self.assertEqual(len(notes), 1, notes)

    def test_says_what_the_ranks_of_a_host_send(self):
        def ranks_line(**variables):
            env = {"SLUICE_REDUCERS": self.addresses[0], "SLUICE_IFNAME": "=lo", "SLUICE_NET": "always", **variables}
            text = self.run_sluice("check", "plugin", "--nccl", self.library, env=env).stdout
            return [line.split(None, 1)[1] for line in text.splitlines() if line.startswith("ranks ")]

        for launcher in ("LOCAL_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS", "SLURM_NTASKS_PER_NODE"):
            self.assertEqual(ranks_line(SLUICE_HOSTS="auto", **{launcher: "8"}), [f"8 on this host ({launcher}), behind lo: all jobs send their sum once"])
        self.assertEqual(ranks_line(SLUICE_HOSTS="off", LOCAL_WORLD_SIZE="8"),
                         ["8 on this host (LOCAL_WORLD_SIZE), behind lo: only jobs with NCCL send their sum once; with SLUICE_HOSTS=off others send 8 times as much"])
        for value in ("1", "", "many"):
            self.assertEqual(ranks_line(LOCAL_WORLD_SIZE=value), [])

    def test_reduces_without_a_pool(self):
        self.check(22809, SLUICE_REDUCERS="none")

    def test_finds_the_library_of_a_python_package(self):
        wheel = self.folder / "lib/python3.12/site-packages/nvidia/nccl/lib"
        wheel.mkdir(parents=True)
        shutil.copy(self.library, wheel / "libnccl.so.2")
        lines = self.check(22907, str(library_beside_plugin("libnccl-net-sluice.so")), VIRTUAL_ENV=str(self.folder))
        self.assertTrue([line for line in lines if f"{wheel}/libnccl.so.2: 2.29.7" in line], lines)

    def warnings(self, **variables):
        env = {"SLUICE_REDUCERS": self.addresses[0], "SLUICE_IFNAME": "=lo", "SLUICE_NET": "always"}
        text = self.run_sluice("check", "plugin", "--nccl", self.library, env=env | variables).stdout
        return [line for line in text.splitlines() if line.startswith("warning")]

    def test_warns_of_other_network_plugins(self):
        self.assertEqual(self.warnings(), [])
        (warning,) = self.warnings(OFI_NCCL_PROTOCOL="RDMA", FI_PROVIDER="efa")
        self.assertIn("aws-ofi-nccl (EFA); NCCL_NET_PLUGIN=sluice replaces it", warning)
        for name, plugin in OTHER_PLUGINS.items():
            with self.subTest(name):
                (warning,) = self.warnings(**{name: "1"})
                self.assertIn(f"{plugin}; NCCL_NET_PLUGIN=sluice replaces it", warning)
        shutil.copy(self.library, self.folder / "libnccl-net.so")
        (warning,) = self.warnings(LD_LIBRARY_PATH=str(self.folder))
        self.assertIn(f"{self.folder}/libnccl-net.so; ", warning)
        # The plugin itself under the name that NCCL loads without NCCL_NET_PLUGIN.
        (self.folder / "libnccl-net.so").unlink()
        (self.folder / "libnccl-net.so").symlink_to(library_beside_plugin("libnccl-net-sluice.so"))
        self.assertEqual(self.warnings(LD_LIBRARY_PATH=str(self.folder)), [])

    def test_reports_a_file_that_is_not_nccl(self):
        other = self.write("libnccl.so.2", 100 * "no library")
        self.assertIn("invalid ELF header", self.check(22809, "--nccl", other)[0])


if __name__ == "__main__":
    main()
