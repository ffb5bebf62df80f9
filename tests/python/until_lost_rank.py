"""A rank that reduces until an operation fails, and prints the error."""

import numpy
import sluice
from package_test_bed import session_of_environment

with session_of_environment(resume_timeout_ms=200) as session:
    gradient = numpy.ones(1000, dtype="float32")
    session.allreduce(gradient)
    print("begun", flush=True)
    try:
        while True:
            session.allreduce(gradient, "max")
    except sluice.Error as error:
        print(type(error).__name__, error.status, type(session.error()).__name__, str(error) == str(session.error()), session.ended_by(), error)
        raise SystemExit(0) from None  # the close of a failed session must not hide the error
