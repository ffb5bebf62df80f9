"""Every version of the tuner, beside a CollNet that is connected and one that is not."""

from playing import Play, main


class Tuner(Play):
    def test_offload_is_on(self):
        self.start_pool(3)
        lines = self.play("tuner", "--ranks", 4, "--verbose")
        # One for each of the five versions and each rank.
        self.assertEqual(len([line for line in lines if "NET/SLUICE: offload ON 3 reducers tcp" in line]), 4 * 5, lines)

    def test_offload_is_switched_off(self):
        self.start_pool(1)
        self.play("tuner", "--ranks", 2, "--expect", "never", env={"SLUICE_OFFLOAD": "never"})

    def test_offload_could_not_be_had(self):
        self.addresses = ["127.0.0.1:1"]
        lines = self.play("tuner", "--ranks", 2, "--expect", "fail", "--verbose")
        self.assertTrue([line for line in lines if "offload OFF" in line and "127.0.0.1:1" in line], lines)


if __name__ == "__main__":
    main()
