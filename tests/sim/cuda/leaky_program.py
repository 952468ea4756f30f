"""A program on the simulated driver that ends without giving back what it holds: a stream and device memory."""

from cuda.bindings import driver
from tests.sim.cuda.calls import Bench, check

bench = Bench()
check(driver.cuMemsetD8Async(bench.device(4), 0, 4, bench.stream()))
check(driver.cuCtxSynchronize())
