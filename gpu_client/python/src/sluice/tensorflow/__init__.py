"""Data-parallel training with TensorFlow and Keras 3: gradients are reduced by a pool of reducers.

    import sluice.tensorflow

    sluice.tensorflow.init()                                    # rank and size from TF_CONFIG
    sluice.tensorflow.broadcast_variables(model.variables)
    model.compile(sluice.tensorflow.DistributedOptimizer(keras.optimizers.Adam()), loss, jit_compile=False)
    model.fit(part_of_this_worker)

SLUICE_REDUCERS and the other variables of libsluice choose the reducers."""

from __future__ import annotations

import keras
import tensorflow

from ..errors import Unsupported

__all__ = ["AverageMetrics", "DistributedOptimizer", "allreduce", "broadcast_variables", "init", "rank", "session", "shutdown", "size"]

_OLDEST = "2.16"  # the first release of TensorFlow whose Keras is Keras 3


def _check_releases() -> None:
    """Raises sluice.Unsupported if this TensorFlow is too old, or Keras is not Keras 3 on TensorFlow."""
    if list(map(int, tensorflow.__version__.split(".")[:2])) < list(map(int, _OLDEST.split("."))):
        raise Unsupported(f"tensorflow {tensorflow.__version__} is too old: sluice.tensorflow needs tensorflow {_OLDEST} or later")
    if int(keras.__version__.split(".")[0]) < 3:
        raise Unsupported(f"keras {keras.__version__} is too old: sluice.tensorflow needs keras 3.0 or later")
    if keras.backend.backend() != "tensorflow":
        raise Unsupported(f"keras {keras.__version__} runs on {keras.backend.backend()}: sluice.tensorflow needs KERAS_BACKEND=tensorflow")


_check_releases()
from .job import init, rank, session, shutdown, size  # noqa: E402
from .training import AverageMetrics, DistributedOptimizer, allreduce, broadcast_variables  # noqa: E402
