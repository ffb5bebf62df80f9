"""Class OuterSync makes the outer steps of torchft's LocalSGD or DiLoCo, over gloo, in a rank of models.py. Each rank is a replica group."""

import datetime
import os

import torch
import torch.distributed as dist
import torchft
from torchft.local_sgd import DiLoCo, LocalSGD
from torchft.process_group import ProcessGroupGloo

PARAMETERS = 8  # of equal size


class OuterSync:
    def __init__(self, settings, rank, ranks, timeout_s):
        torch.set_num_threads(1)
        self._rank, self._ranks = rank, ranks
        elements = settings["bytes"] // 4 // PARAMETERS
        self._layers = torch.nn.ParameterList(torch.ones(elements) for _ in range(PARAMETERS))
        inner = torch.optim.SGD(self._layers.parameters(), lr=0.1)
        timeout, address = datetime.timedelta(seconds=timeout_s), os.environ["ADDRESS"]
        store = dist.TCPStore(address, 0, is_master=True, wait_for_workers=False)
        self._manager = torchft.Manager(pg=ProcessGroupGloo(timeout=timeout), load_state_dict=lambda _: None, state_dict=dict, min_replica_size=ranks,
                                        use_async_quorum=False, replica_id=f"replica_{rank}", rank=0, world_size=1, store_addr=address, store_port=store.port,
                                        lighthouse_addr=os.environ["LIGHTHOUSE"], hostname=address, timeout=timeout, quorum_timeout=timeout,
                                        connect_timeout=timeout, init_sync=False)
        self._store = store
        self._inner = None
        if settings["with"] == "torchft LocalSGD":
            self._outer = LocalSGD(self._manager, self._layers, inner, sync_every=1)
        else:
            self._inner = inner
            self._outer = DiLoCo(self._manager, [self._layers], inner, torch.optim.SGD(self._layers.parameters(), lr=0.7, momentum=0.9, nesterov=True), sync_every=1)
            self._outer.__enter__()  # its hooks make the outer step after each step of the optimizer

    def step(self, _index):
        """The parameters change by another value on each rank, and are averaged."""
        before = self._manager.current_step()
        with torch.no_grad():
            for layer in self._layers:
                layer.add_(self._rank + 1)
        if self._inner is None:
            self._outer.sync()
        else:
            self._inner.step()  # there are no gradients, so this is the outer step alone
        if self._manager.current_step() != before + 1 or self._manager.num_participants() != self._ranks:
            raise ValueError(f"no step of {self._ranks} replicas was committed")

    def value(self):
        return [float(layer[-1]) for layer in self._layers]
