"""Every version of the tuner, beside a CollNet that is connected and one that is not."""

from playing import Play, main


class Tuner(Play):
    def test_offload_is_on(self):
        self.start_pool(2)
        self.play("tuner", "--ranks", 4)

    def test_offload_is_switched_off(self):
        self.start_pool(1)
        self.play("tuner", "--ranks", 2, "--expect", "never", env={"SLUICE_OFFLOAD": "never"})

    def test_offload_could_not_be_had(self):
        self.addresses = ["127.0.0.1:1"]
        self.play("tuner", "--ranks", 2, "--expect", "fail")


if __name__ == "__main__":
    main()
