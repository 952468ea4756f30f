"""Memory: what is checked, what is poison, when copies read. Run on the simulated driver by test_rules.py."""

import ctypes

import numpy as np
import pytest
from cuda.bindings import driver
from tests.sim.cuda.calls import Bench, DriverError, address_of, check, check_value, code_of
from tests.sim.cuda.simulator import AffineShape, Region, Simulator

KERNEL = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.POINTER(ctypes.c_void_p))


def test_fresh_memory_is_poison(sim: Simulator, bench: Bench) -> None:
    host, device, stream = bench.pinned(4), bench.device(4), bench.stream()
    assert (host < -1e36).all()
    check(driver.cuMemcpyDtoHAsync(address_of(host), device, host.nbytes, stream))
    check(driver.cuStreamSynchronize(stream))
    assert (host < -1e36).all()
    assert "nothing has written" in sim.violation()


def test_no_address_is_used_twice(bench: Bench) -> None:
    seen = set()
    for _ in range(50):
        address = bench.device(16)
        seen.add(address)
        bench.give_back(address)
    assert len(seen) == 50


@pytest.mark.parametrize("offset", [-4, 4, 1 << 20])
def test_a_copy_stays_within_its_allocation(bench: Bench, offset: int) -> None:
    host, device = bench.pinned(4), bench.device(4)
    for result in (
        driver.cuMemcpyHtoD(device + offset, address_of(host), host.nbytes),
        driver.cuMemcpyDtoH(address_of(host), device + offset, host.nbytes),
        driver.cuMemsetD8(device + offset, 0, host.nbytes),
    ):
        assert code_of(result) == "INVALID_VALUE"


def test_freed_memory_is_refused(bench: Bench) -> None:
    host, device = bench.pinned(4), bench.device(4)
    bench.give_back(device)
    assert code_of(driver.cuMemcpyHtoD(device, address_of(host), 4)) == "INVALID_VALUE"
    assert code_of(driver.cuMemFree(device)) == "INVALID_VALUE"


def test_directions_are_not_mixed_up(bench: Bench) -> None:
    pageable, device = np.zeros(4, np.float32), bench.device(4)
    assert code_of(driver.cuMemcpyHtoD(address_of(pageable), device, 4)) == "INVALID_VALUE"
    assert code_of(driver.cuMemcpyDtoH(device, address_of(pageable), 4)) == "INVALID_VALUE"
    assert code_of(driver.cuMemcpyDtoD(device, address_of(pageable), 4)) == "INVALID_VALUE"


def test_a_copy_from_pinned_memory_reads_when_it_runs(sim: Simulator, bench: Bench) -> None:
    """Under most seeds the later value arrives; under those that run early, the first."""
    assert {_arrives(sim, seed, pinned=True) for seed in range(100)} >= {1.0, 2.0}


def test_a_copy_from_pageable_memory_reads_before_it_returns(sim: Simulator, bench: Bench) -> None:
    assert {_arrives(sim, seed, pinned=False) for seed in range(100)} == {1.0}


def _arrives(sim: Simulator, seed: int, pinned: bool) -> float:
    sim.reset(seed)
    with Bench() as bench:
        source = bench.pinned(1) if pinned else np.empty(1, np.float32)
        target, stream, out = bench.device(1), bench.stream(), np.empty(1, np.float32)
        source[:] = 1
        check(driver.cuMemcpyHtoDAsync(target, address_of(source), 4, stream))
        source[:] = 2
        check(driver.cuStreamSynchronize(stream))
        check(driver.cuMemcpyDtoH(address_of(out), target, 4))
        return float(out[0])


def test_a_copy_to_pageable_memory_returns_when_it_is_there(sim: Simulator) -> None:
    for seed in range(100):
        sim.reset(seed)
        with Bench() as bench:
            device, stream, out = bench.device(4), bench.stream(), np.zeros(4, np.int32)
            check(driver.cuMemsetD32Async(device, seed, 4, stream))
            check(driver.cuMemcpyDtoHAsync(out.ctypes.data, device, out.nbytes, stream))
            assert (out == seed).all()


def test_half_a_copy_can_be_seen(sim: Simulator) -> None:
    """The host that looks too early may find anything between nothing and all of it."""
    seen = set()
    for seed in range(200):
        sim.reset(seed)
        with Bench() as bench:
            host, device, stream = bench.pinned(64), bench.device(64), bench.stream()
            host[:] = 9
            check(driver.cuMemsetD32Async(device, 0, 64, stream))
            check(driver.cuMemcpyDtoHAsync(address_of(host), device, host.nbytes, stream))
            driver.cuStreamQuery(stream)
            seen.add(int(np.count_nonzero(host)))
            check(driver.cuStreamSynchronize(stream))
    assert {0, 64} < seen


def test_memory_runs_out(sim: Simulator, bench: Bench) -> None:
    sim.device_bytes(1000)
    bench.device(200)
    assert driver.cuMemGetInfo()[1:] == (200, 1000)
    with pytest.raises(DriverError, match="OUT_OF_MEMORY"):
        bench.device(51)


def test_a_kernel_that_writes_too_far_damages_a_guard(sim: Simulator, bench: Bench) -> None:
    device, stream = bench.device(4), bench.stream()
    too_far = KERNEL(lambda _, views: ctypes.memset(views[0], 0, 17) and None)
    assert sim.launch(stream, too_far, AffineShape(), [Region(device, 16, 1)]) == 0
    check(driver.cuStreamSynchronize(stream))
    assert sim.check_guards() == 1
    assert "guard zone behind device allocation" in sim.violation()


def test_a_host_that_writes_too_far_damages_a_guard(sim: Simulator, bench: Bench) -> None:
    host = bench.pinned(4)
    ctypes.memset(address_of(host), 0, 17)
    bench.give_back(address_of(host))
    assert "guard zone behind pinned allocation" in sim.violation()


def test_pinned_memory_has_one_address_for_both(bench: Bench) -> None:
    host = bench.pinned(4)
    assert check_value(driver.cuMemHostGetDevicePointer(address_of(host), 0)) == address_of(host)
    attribute = driver.CUpointer_attribute.CU_POINTER_ATTRIBUTE_MEMORY_TYPE
    assert driver.cuPointerGetAttribute(attribute, address_of(host))[1] == driver.CUmemorytype.CU_MEMORYTYPE_HOST
    assert driver.cuPointerGetAttribute(attribute, bench.device(1))[1] == driver.CUmemorytype.CU_MEMORYTYPE_DEVICE


def test_registered_memory_is_pinned(bench: Bench) -> None:
    page = np.zeros(1024, np.float32)
    assert code_of(driver.cuMemHostGetDevicePointer(address_of(page), 0)) == "INVALID_VALUE"
    check(driver.cuMemHostRegister(address_of(page), page.nbytes, 0))
    again = driver.cuMemHostRegister(address_of(page) + 64, 64, 0)
    assert code_of(again) == "HOST_MEMORY_ALREADY_REGISTERED"
    assert check_value(driver.cuMemHostGetDevicePointer(address_of(page), 0)) == address_of(page)
    check(driver.cuMemHostUnregister(address_of(page)))
    assert code_of(driver.cuMemHostUnregister(address_of(page))) == "HOST_MEMORY_NOT_REGISTERED"


def test_leaks_are_told(sim: Simulator, bench: Bench) -> None:
    sim.check_leaks(True)
    for thing in (bench.device(4), bench.stream(), bench.event()):
        bench.forget(thing)
    assert sim.leaks().count("\n") == 3
    bench.close()
    assert "while this lives in it" in sim.violation()
    sim.check_leaks(False)
