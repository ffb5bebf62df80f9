"""TLS between real processes, by the job's token and by certificates, and refused connections. Certificates need the openssl program."""

import os
import re
import subprocess
import threading

from sluice_process import SluiceTest, main

from capabilities import need, needs  # noqa: E402: sluice_process says where it is

RUN = ("bench", "allreduce", "-b", "4K", "-e", "1M", "-f", "16", "-n", "3", "--workers", "2", "--join-timeout", "20s")


class TokenTlsTest(SluiceTest):
    def setUp(self):
        super().setUp()
        self.key = self.make_key()

    def test_every_connection_of_a_session_uses_tls(self):
        _, address = self.start_reducer("--key-file", self.key, "--tls", "require", "--lanes", "2")
        for threads in ("0", "1"):
            result = self.run_json(*RUN, "--connect", address, "--key-file", self.key, "--tls", "require", "--threads", threads, "--lanes", "2")
            self.assertEqual(result["out_of_bounds"]["count"], 0)
        status = self.run_sluice("status", "--reducers", address, "--key-file", self.key, env={"SLUICE_TLS": "require"}).stdout
        self.assertIn('"failed":0', status.replace(" ", "").replace("\n", "").split('"tls":')[1][:30])
        self.assertIn("sum", self.run_sluice("bench", "allreduce", "-b", "64K", "-e", "64K", "-n", "1", "--workers", "2", "--reducers", "2",
                                             "--key-file", self.key, "--tls", "require").stdout)

    def test_co_located_reducers_use_tls(self):
        self.run_sluice(*RUN, "--workers", "3", "--reducers", "0", "--key-file", self.key, "--tls", "require")

    def test_counts_tls_handshakes(self):
        _, address = self.start_reducer("--key-file", self.key, "--tls", "on", "--lanes", "2")
        self.run_sluice(*RUN, "--connect", address, "--key-file", self.key, "--lanes", "2")
        plain = self.status(address, "--key-file", self.key)
        self.assertEqual(plain["tls"], {"agreed": 0, "failed": 0})
        self.run_sluice(*RUN, "--connect", address, "--key-file", self.key, "--lanes", "2", "--tls", "on")
        # Two ranks, each with a control connection and two lanes. Rank 0 also queries the status.
        self.assertGreaterEqual(self.status(address, "--key-file", self.key)["tls"]["agreed"], 6)

    def test_a_worker_that_requires_tls_refuses_a_reducer_without_it(self):
        _, address = self.start_reducer("--key-file", self.key)
        self.expect_error(69, f"reducer {address}: does not offer TLS", *RUN, "--connect", address, "--key-file", self.key, "--tls", "require")
        self.run_sluice(*RUN, "--connect", address, "--key-file", self.key, "--tls", "on")

    def test_a_reducer_that_requires_tls_refuses_a_worker_without_it(self):
        _, address = self.start_reducer("--key-file", self.key, "--tls", "require")
        self.expect_error(69, "reducer requires TLS", *RUN, "--connect", address, "--key-file", self.key)

    def test_a_reducer_with_tls_needs_a_key_or_a_certificate(self):
        self.expect_error(64, "TLS needs a key file", "reducer", "--listen", "127.0.0.1:0", "--tls", "on")

    def test_a_worker_with_tls_needs_a_token_or_an_authority(self):
        # There is no key, hence no token, and no authority is configured.
        need("program:openssl")
        certificate = Authority(self.folder).certificate("localhost", "DNS:localhost")
        _, address = self.start_reducer("--tls", "on", "--tls-cert", certificate)
        self.expect_error(64, "neither a token nor a certificate authority", *RUN, "--connect", address, "--tls", "on")

    def test_a_missing_tls_library_is_named(self):
        _, address = self.start_reducer("--key-file", self.key)
        self.expect_error(69, re.compile("libsluice_tls.so.*SLUICE_TLS_LIBRARY"), *RUN, "--connect", address, "--key-file", self.key, "--tls", "on",
                          env={"SLUICE_TLS_LIBRARY": "/nowhere/x.so"})

    def test_an_unknown_mode_is_refused(self):
        self.run_sluice(*RUN, "--tls", "maybe", expect=64)


class Authority:
    """A certificate authority for the test."""

    def __init__(self, folder, name="ca"):
        self.folder = folder
        self.ca = folder / f"{name}.pem"
        self.ca_key = folder / f"{name}.key"
        self._openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", f"/CN={name}", "-days", "2",
                      "-keyout", self.ca_key, "-out", self.ca)

    def _openssl(self, *arguments):
        subprocess.run(["openssl", *map(str, arguments)], check=True, capture_output=True, timeout=60)

    def certificate(self, name, alternative):
        """Returns a file with a certificate and its key."""
        request, extensions, out = (self.folder / f"{name}.{end}" for end in ("csr", "ext", "both"))
        key, certificate = self.folder / f"{name}.key", self.folder / f"{name}.crt"
        extensions.write_text(f"subjectAltName={alternative}\n")
        self._openssl("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", f"/CN={name}", "-keyout", key, "-out", request)
        self._openssl("x509", "-req", "-in", request, "-CA", self.ca, "-CAkey", self.ca_key, "-CAcreateserial", "-days", "2", "-extfile", extensions,
                      "-out", certificate)
        out.write_text(certificate.read_text() + key.read_text())
        return out


@needs("program:openssl")
class FilesOfAReducerTest(SluiceTest):
    """A file that TLS cannot use is named with the reason, at --check-config and at start."""

    def expired(self, certificate, key):
        path = self.folder / f"expired-{certificate.name}"
        subprocess.run(["openssl", "x509", "-in", certificate, "-signkey", key, "-days", "-1", "-out", path], check=True, capture_output=True, timeout=60)
        return path

    def test_each_file_is_named_with_the_reason(self):
        authority = Authority(self.folder)
        good = authority.certificate("reducer", "IP:127.0.0.1")
        certificate, key = self.folder / "reducer.crt", self.folder / "reducer.key"
        other_key, locked, text = self.folder / "ca.key", self.folder / "locked.key", self.write("notes.pem", "no certificate\n")
        subprocess.run(["openssl", "ec", "-in", key, "-aes256", "-passout", "pass:x", "-out", locked], check=True, capture_output=True, timeout=60)
        absent, other_type = self.folder / "absent.pem", self.folder / "rsa.key"
        subprocess.run(["openssl", "genrsa", "-out", other_type, "2048"], check=True, capture_output=True, timeout=60)
        expired, expired_ca = self.expired(certificate, key), self.expired(authority.ca, authority.ca_key)
        cases = (
            (("--tls-cert", absent), f"certificate {absent}: No such file or directory"),
            (("--tls-cert", self.folder), f"certificate {self.folder}: Is a directory"),
            (("--tls-cert", text), f"certificate {text}: the file has no such PEM block"),
            (("--tls-cert", expired, "--tls-key", key), f"certificate {expired} expired on 20"),
            (("--tls-cert", certificate, "--tls-key", absent), f"private key {absent}: No such file or directory"),
            (("--tls-cert", certificate), f"private key {certificate}: the file has no such PEM block"),
            (("--tls-cert", certificate, "--tls-key", locked), f"private key {locked}: the key has a password; remove it"),
            (("--tls-cert", certificate, "--tls-key", other_key), f"private key {other_key} is not that of certificate {certificate}"),
            (("--tls-cert", certificate, "--tls-key", other_type), f"private key {other_type} is not that of certificate {certificate}"),
            (("--tls-cert", good, "--tls-client-ca", absent), f"certificate authority {absent}: No such file or directory"),
            (("--tls-cert", good, "--tls-client-ca", text), f"certificate authority {text}: "),
            (("--tls-cert", good, "--tls-client-ca", expired_ca), f"certificate authority {expired_ca} expired on 20"),
        )
        for options, message in cases:
            with self.subTest(message):
                for code, mode in ((78, ("--check-config",)), (64, ())):
                    done = self.expect_error(code, message, "reducer", "--listen", "127.0.0.1:0", "--tls", "require", *options, *mode)
                    self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
        self.run_sluice("reducer", "--listen", "127.0.0.1:0", "--tls", "require", "--tls-cert", good, "--tls-client-ca", authority.ca, "--check-config")

    def test_files_may_be_pipes(self):
        """As the shell's <(command): each can be read once."""
        authority = Authority(self.folder)
        authority.certificate("reducer", "IP:127.0.0.1")

        def pipe(file):
            path = self.folder / f"{file.name}.pipe"
            os.mkfifo(path)
            threading.Thread(target=path.write_bytes, args=(file.read_bytes(),), daemon=True).start()
            return path

        _, address = self.start_reducer("--tls", "require", "--tls-cert", pipe(self.folder / "reducer.crt"), "--tls-key", pipe(self.folder / "reducer.key"))
        self.run_sluice("status", "--reducers", address, env={"SLUICE_TLS": "require", "SLUICE_TLS_CA": str(pipe(authority.ca))})
        # The models of a reducer have a reading of their own.
        os.mkfifo(self.folder / "twice")
        self.expect_error(78, f"--tls-cert {self.folder}/twice: is a pipe, but with --state it is read twice", "reducer", "--tls", "require", "--tls-cert",
                          self.folder / "twice", "--state", self.folder / "models", "--check-config")


@needs("program:openssl")
class FilesWithoutTlsTest(SluiceTest):
    def test_a_reducer_refuses_them(self):
        certificate = Authority(self.folder).certificate("reducer", "IP:127.0.0.1")
        for option in ("--tls-cert", "--tls-key", "--tls-client-ca"):
            text = f"{option} is set, but TLS is not switched on; add --tls require"
            self.expect_error(64, text, "reducer", "--listen", "127.0.0.1:0", option, certificate)
            self.expect_error(78, text, "reducer", "--check-config", option, certificate)
            self.expect_error(78, text, "reducer", "--check-config", env={"SLUICE_" + option[2:].replace("-", "_").upper(): str(certificate)})
            self.run_sluice("reducer", "--check-config", option, certificate, "--tls", "off")


@needs("program:openssl")
class CertificateTlsTest(SluiceTest):
    def setUp(self):
        super().setUp()
        self.authority = Authority(self.folder)

    def reducer(self, alternative, *more):
        _, address = self.start_reducer("--tls", "require", "--tls-cert", self.authority.certificate("reducer", alternative), *more)
        return address

    def run_job(self, address, error=None, **variables):
        """`error`: a text or pattern of the message when the job must be refused."""
        command = (*RUN, "--connect", address)
        env = {"SLUICE_TLS": "require"} | {name: str(value) for name, value in variables.items()}
        if error is None:
            self.run_sluice(*command, env=env)
        else:
            self.expect_error(69, error, *command, env=env)

    def test_the_certificate_may_have_the_host_name(self):
        address = self.reducer("DNS:localhost").replace("127.0.0.1", "localhost")
        self.run_job(address, SLUICE_TLS_CA=self.authority.ca)

    def test_the_certificate_may_have_the_address(self):
        self.run_job(self.reducer("IP:127.0.0.1"), SLUICE_TLS_CA=self.authority.ca)

    def test_a_certificate_of_another_name_is_refused(self):
        for alternative in ("DNS:reducer.example", "IP:127.0.0.2"):
            with self.subTest(alternative=alternative):
                self.run_job(self.reducer(alternative), re.compile("certificate.*mismatch"), SLUICE_TLS_CA=self.authority.ca)

    def test_a_certificate_of_another_authority_is_refused(self):
        other = Authority(self.folder, "other")
        self.run_job(self.reducer("IP:127.0.0.1"), "certificate of the peer rejected: ", SLUICE_TLS_CA=other.ca)

    def test_workers_need_a_certificate_if_the_reducer_has_a_client_authority(self):
        address = self.reducer("IP:127.0.0.1", "--tls-client-ca", self.authority.ca)
        self.run_job(address, "certificate required; set SLUICE_TLS_CERT", SLUICE_TLS_CA=self.authority.ca)
        self.run_job(address, SLUICE_TLS_CA=self.authority.ca, SLUICE_TLS_CERT=self.authority.certificate("worker", "DNS:worker"))

    def test_co_located_reducers_need_the_token(self):
        self.expect_error(69, "TLS between workers needs the token of the job", *RUN, "--reducers", "0", "--tls", "on",
                          env={"SLUICE_TLS_CA": self.authority.ca})

    def test_the_token_is_also_checked_inside_tls(self):
        key = self.make_key()
        address = self.reducer("IP:127.0.0.1", "--key-file", key)
        self.run_job(address, SLUICE_TLS_CA=self.authority.ca, SLUICE_KEY_FILE=key)
        self.run_job(address, "requires the key of the pool; set SLUICE_KEY_FILE", SLUICE_TLS_CA=self.authority.ca)


if __name__ == "__main__":
    main()
