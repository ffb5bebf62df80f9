"""Every client against a pool with a key and a pool with TLS: variables and options mean the same, and errors say the same."""

import concurrent.futures
import contextlib
import io
import itertools
import os
import subprocess
import types
import unittest
from datetime import timedelta
from unittest import mock

import sluice
import sluice.store
import sluice.torch
import torch
import torch.distributed as dist
from package_test_bed import PackageTest, main, sluice_process
from sluice.torch.creation import create
from sluice.torchft import ProcessGroupSluice
from tls_test import Authority

from capabilities import needs  # noqa: E402: sluice_process says where it is

C_CLIENT, CXX_CLIENT, PLUGIN = (os.environ[f"SLUICE_TEST_{name}"] for name in ("C_CLIENT", "CXX_CLIENT", "PLUGIN"))
TIMEOUT = timedelta(seconds=30)
GROUPS = itertools.count()


def by_two_ranks(work):
    """Calls work(rank) in two threads. Raises the first error, after both have ended: both ranks must get one."""
    with concurrent.futures.ThreadPoolExecutor(2) as threads:
        futures = [threads.submit(work, rank) for rank in range(2)]
        errors = [future.exception(120) for future in futures]
    if errors[0] is not None and errors[1] is not None:
        raise errors[0]
    if errors != [None, None]:
        raise AssertionError(f"one rank only: {errors}")


def python_session(options):
    with sluice.Session(None, session_id=os.urandom(16), rank=0, ranks=1, **options) as session:
        session.allreduce(torch.ones(4))


def ddp_hook(options):
    with sluice.session_from_torch(None, **options) as session:
        model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(3, 2))
        model.register_comm_hook(None, sluice.ddp_hook(session))
        model(torch.ones(1, 3)).sum().backward()


def torch_backend(options):
    store, name = dist.HashStore(), f"group{next(GROUPS)}"

    def run(rank):
        arguments = types.SimpleNamespace(store=dist.PrefixStore(name, store), group_rank=rank, group_size=2, timeout=TIMEOUT, global_ranks_in_group=[])
        group = create(arguments, sluice.torch.Options(**options) if options else None)
        x = torch.ones(4)
        group.allreduce([x]).wait()
        group.shutdown()
        assert x.tolist() == [2.0] * 4, x

    by_two_ranks(run)


def torchft(options):
    store, name = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False), f"quorum/{next(GROUPS)}"

    def run(rank):
        group = ProcessGroupSluice(TIMEOUT, options=sluice.torch.Options(**options))
        try:
            group.configure(f"127.0.0.1:{store.port}/{name}", f"replica_{rank}", rank, 2, 1, 0, 1, [0, 1])
        finally:
            group.shutdown()

    by_two_ranks(run)


def python_store(options):
    with sluice.store.Store(**options) as store:
        store.list()


def program(*command, separator="="):
    """A client that is a process: NAME=VALUE, or --na-me VALUE."""

    def run(options):
        arguments = []
        for name, value in options.items():
            arguments += [f"{name}={value}"] if separator == "=" else [f"--{name.replace('_', '-')}", str(value)]
        done = subprocess.run([*command, *arguments], env=dict(os.environ), capture_output=True, text=True, timeout=120, check=False)
        if done.returncode != 0:
            raise RuntimeError(done.stdout + done.stderr)

    return run


def tool(*command):
    return lambda options: program(sluice_process.PROGRAM, *(os.environ["SLUICE_REDUCERS"] if part == "LIST" else part for part in command),
                                   separator=" ")(options)


def plugin(options):
    assert not options, "the plugin has variables only"
    program(sluice_process.PROGRAM, "check", "plugin", PLUGIN)({})


CLIENTS = {
    "C session": program(C_CLIENT, "session"),
    "C store": program(C_CLIENT, "store"),
    "C++ session": program(CXX_CLIENT),
    "Python session": python_session,
    "Python store": python_store,
    "DDP hook": ddp_hook,
    "torch backend": torch_backend,
    "torchft": torchft,
    "sluice status": tool("status", "--reducers", "LIST"),
    "sluice store": tool("store", "list", "--reducers", "LIST"),
    "sluice bench": tool("bench", "allreduce", "-b", "4K", "-e", "4K", "-n", "1", "--workers", "2", "--connect", "LIST"),
    "sluice bench --through-plugin": tool("bench", "allreduce", "-b", "4K", "-e", "4K", "-n", "1", "--workers", "2", "--connect", "LIST",
                                          "--through-plugin", "--plugin", PLUGIN),
    "NCCL plugin": plugin,
}


class Clients(PackageTest):
    @classmethod
    def setUpClass(cls):
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)  # for the DDP hook
        cls.addClassCleanup(dist.destroy_process_group)

    def try_clients(self, address, cases):
        """A case: what it shows, variables, options, and the texts of the error; without texts the client must succeed."""
        clean = {name: value for name, value in os.environ.items() if not name.startswith("SLUICE_") or name in ("SLUICE_LIBRARY", "SLUICE_COLOCATED")}
        always = {"SLUICE_REDUCERS": address, "SLUICE_NET": "always", "SLUICE_IFNAME": "=lo", "SLUICE_CONNECT_TIMEOUT": "20s",
                  "SLUICE_COLOCATED": "off", "MASTER_ADDR": "127.0.0.1"}
        for what, variables, options, texts in cases:
            environment = {**clean, **always, **{name: str(value) for name, value in variables.items()}}
            for client, run in CLIENTS.items():
                if client == "NCCL plugin" and options:
                    continue
                with self.subTest(case=what, client=client), mock.patch.dict(os.environ, environment, clear=True):
                    try:
                        with contextlib.redirect_stderr(io.StringIO()):
                            run(options)
                        self.assertEqual(texts, (), "no error")
                    except AssertionError:
                        raise
                    except Exception as error:
                        self.assertNotEqual(texts, (), f"{type(error).__name__}: {error}")
                        for text in texts:
                            self.assertIn(str(text), str(error))

    def test_a_pool_with_a_key(self):
        key, other, token = self.make_key(), self.folder / "other.key", self.folder / "train.token"
        self.run_sluice("keygen", "--out", other)
        self.run_sluice("keygen", "--job", "train", "--key-file", key, "--out", token)
        _, address = self.start_reducer("--key-file", key, "--state", self.folder / "state", "--lanes", "1")
        missing = self.folder / "missing"
        says_what_to_set = ("requires the key of the pool", "set SLUICE_KEY_FILE, or SLUICE_TOKEN_FILE and SLUICE_JOB")
        self.try_clients(address, (
            ("key by a variable", {"SLUICE_KEY_FILE": key}, {}, ()),
            ("token by variables", {"SLUICE_TOKEN_FILE": token, "SLUICE_JOB": "train"}, {}, ()),
            ("key by an option, other variables", {"SLUICE_TOKEN_FILE": missing}, {"key_file": key}, ()),
            ("token by options, other variables", {"SLUICE_KEY_FILE": missing, "SLUICE_JOB": "other"}, {"token_file": token, "job": "train"}, ()),
            ("neither key nor token", {}, {}, says_what_to_set),
            ("the key of a variable switched off by an option", {"SLUICE_KEY_FILE": key}, {"key_file": ""}, says_what_to_set),
            ("another key", {"SLUICE_KEY_FILE": other}, {}, ("check SLUICE_KEY_FILE, SLUICE_TOKEN_FILE and SLUICE_JOB",)),
            ("a token without its job", {"SLUICE_TOKEN_FILE": token}, {}, ("wrong token for job", "check SLUICE_KEY_FILE")),
            ("a file that is missing", {"SLUICE_KEY_FILE": missing}, {}, (f"SLUICE_KEY_FILE: cannot read {missing}: No such file",)),
            ("both files", {"SLUICE_KEY_FILE": key, "SLUICE_TOKEN_FILE": token}, {}, ("SLUICE_KEY_FILE and SLUICE_TOKEN_FILE are both set",)),
        ))

    @needs("program:openssl")
    def test_a_pool_with_tls(self):
        authority, stranger = Authority(self.folder), Authority(self.folder, "stranger")
        own = authority.certificate("worker", "DNS:worker")
        certificate, private = self.folder / "worker.crt", self.folder / "worker.key"
        _, address = self.start_reducer("--tls", "require", "--tls-cert", authority.certificate("reducer", "IP:127.0.0.1"), "--tls-client-ca",
                                        authority.ca, "--state", self.folder / "state", "--lanes", "1")
        missing = self.folder / "missing.pem"
        tls = {"SLUICE_TLS": "require", "SLUICE_TLS_CA": authority.ca, "SLUICE_TLS_CERT": own}
        self.try_clients(address, (
            ("variables", tls, {}, ()),
            ("a key in a file of its own", {**tls, "SLUICE_TLS_CERT": certificate, "SLUICE_TLS_KEY": private}, {}, ()),
            ("options, other variables", {"SLUICE_TLS": "off", "SLUICE_TLS_CA": missing, "SLUICE_TLS_CERT": missing, "SLUICE_TLS_KEY": missing},
             {"tls": "require", "tls_ca": authority.ca, "tls_cert": certificate, "tls_key": private}, ()),
            ("no TLS", {}, {}, ("reducer requires TLS", "SLUICE_TLS")),
            ("TLS of variables switched off by an option", tls, {"tls": "off"}, ("reducer requires TLS", "SLUICE_TLS")),
            ("files without TLS", {"SLUICE_TLS_CA": authority.ca}, {}, ("SLUICE_TLS_CA is set, but TLS is not switched on; set SLUICE_TLS=require",)),
            ("a missing authority", {**tls, "SLUICE_TLS_CA": missing}, {}, (f"certificate authority {missing}: No such file",)),
            ("another authority", {**tls, "SLUICE_TLS_CA": stranger.ca}, {}, ("certificate of the peer rejected", stranger.ca)),
            ("neither a token nor an authority", {"SLUICE_TLS": "require"}, {}, ("set SLUICE_KEY_FILE, SLUICE_TOKEN_FILE or SLUICE_TLS_CA",)),
            ("a key of another certificate", {**tls, "SLUICE_TLS_KEY": stranger.ca_key}, {}, (f"private key {stranger.ca_key} is not that of certificate {own}",)),
        ))


if __name__ == "__main__":
    main()
