"""TLS between real processes: by the job's token and by certificates, and what is refused. Certificates take the openssl program."""

import subprocess

from sluice_process import SluiceTest, main

from capabilities import need, needs  # noqa: E402: sluice_process says where it is

RUN = ("bench", "allreduce", "-b", "4K", "-e", "1M", "-f", "16", "-n", "3", "--workers", "2", "--join-timeout", "20s")


class ByToken(SluiceTest):
    def setUp(self):
        super().setUp()
        self.key = self.folder / "pool.key"
        self.run_sluice("keygen", "--out", self.key)

    def test_every_connection_of_a_session_is_secured(self):
        _, address = self.start_reducer("--key-file", self.key, "--tls", "require", "--lanes", "2")
        for threads in ("0", "1"):
            result = self.run_json(*RUN, "--connect", address, "--key-file", self.key, "--tls", "require", "--threads", threads, "--lanes", "2")
            self.assertEqual(result["out_of_bounds"]["count"], 0)
        status = self.run_sluice("status", "--reducers", address, "--key-file", self.key, env={"SLUICE_TLS": "require"}).stdout
        self.assertIn('"failed":0', status.replace(" ", "").replace("\n", "").split('"tls":')[1][:30])
        self.assertIn("sum", self.run_sluice("bench", "allreduce", "-b", "64K", "-e", "64K", "-n", "1", "--workers", "2", "--reducers", "2",
                                             "--key-file", self.key, "--tls", "require").stdout)

    def test_counts_what_went_through_tls(self):
        _, address = self.start_reducer("--key-file", self.key, "--tls", "on", "--lanes", "2")
        self.run_sluice(*RUN, "--connect", address, "--key-file", self.key, "--lanes", "2")
        plain = self.status(address, "--key-file", self.key)
        self.assertEqual(plain["tls"], {"agreed": 0, "failed": 0})
        self.run_sluice(*RUN, "--connect", address, "--key-file", self.key, "--lanes", "2", "--tls", "on")
        # Two ranks, each with a control connection and two lanes; rank 0 asks for the status besides.
        self.assertGreaterEqual(self.status(address, "--key-file", self.key)["tls"]["agreed"], 6)

    def test_a_reducer_without_tls_is_refused_where_it_is_required(self):
        _, address = self.start_reducer("--key-file", self.key)
        done = self.run_sluice(*RUN, "--connect", address, "--key-file", self.key, "--tls", "require", expect=69)
        self.assertRegex(done.stderr, f"reducer {address}: does not offer TLS")
        self.run_sluice(*RUN, "--connect", address, "--key-file", self.key, "--tls", "on")

    def test_a_worker_without_tls_is_refused_where_it_is_required(self):
        _, address = self.start_reducer("--key-file", self.key, "--tls", "require")
        done = self.run_sluice(*RUN, "--connect", address, "--key-file", self.key, expect=69)
        self.assertRegex(done.stderr, "nobody without TLS")

    def test_a_reducer_with_nothing_to_be_known_by_does_not_start(self):
        done = self.run_sluice("reducer", "--listen", "127.0.0.1:0", "--tls", "on", expect=64)
        self.assertIn("key file or a certificate", done.stderr)

    def test_a_worker_with_nothing_to_know_the_reducer_by_says_so(self):
        # Without a key there is no token, and no authority was named.
        need("program:openssl")
        certificate = Authority(self.folder).certificate("localhost", "DNS:localhost")
        _, address = self.start_reducer("--tls", "on", "--tls-cert", certificate)
        done = self.run_sluice(*RUN, "--connect", address, "--tls", "on", expect=64)
        self.assertIn("neither a token nor a certificate authority", done.stderr)

    def test_a_library_that_is_not_there_is_named(self):
        _, address = self.start_reducer("--key-file", self.key)
        done = self.run_sluice(*RUN, "--connect", address, "--key-file", self.key, "--tls", "on", env={"SLUICE_TLS_LIBRARY": "/nowhere/x.so"}, expect=69)
        self.assertRegex(done.stderr, "libsluice_tls.so.*SLUICE_TLS_LIBRARY")

    def test_a_mode_that_is_none_is_refused(self):
        self.run_sluice(*RUN, "--tls", "maybe", expect=64)


class Authority:
    """Certificates of an authority of its own."""

    def __init__(self, folder, name="ca"):
        self.folder = folder
        self.ca = folder / f"{name}.pem"
        self.ca_key = folder / f"{name}.key"
        self._openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", f"/CN={name}", "-days", "2",
                      "-keyout", self.ca_key, "-out", self.ca)

    def _openssl(self, *arguments):
        subprocess.run(["openssl", *map(str, arguments)], check=True, capture_output=True, timeout=60)

    def certificate(self, name, alternative):
        """A file with certificate and key."""
        request, extensions, out = (self.folder / f"{name}.{end}" for end in ("csr", "ext", "both"))
        key, certificate = self.folder / f"{name}.key", self.folder / f"{name}.crt"
        extensions.write_text(f"subjectAltName={alternative}\n")
        self._openssl("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", f"/CN={name}", "-keyout", key, "-out", request)
        self._openssl("x509", "-req", "-in", request, "-CA", self.ca, "-CAkey", self.ca_key, "-CAcreateserial", "-days", "2", "-extfile", extensions,
                      "-out", certificate)
        out.write_text(certificate.read_text() + key.read_text())
        return out


@needs("program:openssl")
class ByCertificate(SluiceTest):
    def setUp(self):
        super().setUp()
        self.authority = Authority(self.folder)

    def reducer(self, alternative, *more):
        _, address = self.start_reducer("--tls", "require", "--tls-cert", self.authority.certificate("reducer", alternative), *more)
        return address

    def run_job(self, address, expect=0, **variables):
        variables = {name: str(value) for name, value in variables.items()}
        return self.run_sluice(*RUN, "--connect", address, env={"SLUICE_TLS": "require", **variables}, expect=expect)

    def test_the_name_that_was_dialled_is_in_the_certificate(self):
        address = self.reducer("DNS:localhost").replace("127.0.0.1", "localhost")
        self.run_job(address, SLUICE_TLS_CA=self.authority.ca)

    def test_an_address_can_be_in_the_certificate(self):
        self.run_job(self.reducer("IP:127.0.0.1"), SLUICE_TLS_CA=self.authority.ca)

    def test_a_certificate_of_another_name_is_refused(self):
        for alternative in ("DNS:reducer.example", "IP:127.0.0.2"):
            with self.subTest(alternative=alternative):
                done = self.run_job(self.reducer(alternative), SLUICE_TLS_CA=self.authority.ca, expect=69)
                self.assertRegex(done.stderr, "certificate.*mismatch")

    def test_a_certificate_of_another_authority_is_refused(self):
        other = Authority(self.folder, "other")
        done = self.run_job(self.reducer("IP:127.0.0.1"), SLUICE_TLS_CA=other.ca, expect=69)
        self.assertRegex(done.stderr, "certificate: ")

    def test_workers_have_to_show_a_certificate_where_an_authority_is_named(self):
        address = self.reducer("IP:127.0.0.1", "--tls-client-ca", self.authority.ca)
        done = self.run_job(address, SLUICE_TLS_CA=self.authority.ca, expect=69)
        self.assertIn("certificate required", done.stderr)
        self.run_job(address, SLUICE_TLS_CA=self.authority.ca, SLUICE_TLS_CERT=self.authority.certificate("worker", "DNS:worker"))

    def test_a_token_is_proved_inside_too(self):
        key = self.folder / "pool.key"
        self.run_sluice("keygen", "--out", key)
        address = self.reducer("IP:127.0.0.1", "--key-file", key)
        self.run_job(address, SLUICE_TLS_CA=self.authority.ca, SLUICE_KEY_FILE=key)
        done = self.run_job(address, SLUICE_TLS_CA=self.authority.ca, expect=69)
        self.assertIn("token", done.stderr)


if __name__ == "__main__":
    main()
