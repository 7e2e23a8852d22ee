"""A process of a drilled run arrives: everything is hooked that its orders ask for, before its first own line."""

from __future__ import annotations

import atexit
import importlib
import importlib.util
import sys
from collections.abc import Callable, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from failsoft.drills.fault import DrillFault
from failsoft.drills.training.inside.course import Course
from failsoft.drills.training.inside.deeds import act
from failsoft.drills.training.inside.disk import DiskHooks
from failsoft.drills.training.inside.marks import Marks
from failsoft.drills.training.inside.orders import Orders, Strike, read_orders
from failsoft.drills.training.inside.wall import WallClock
from failsoft.health.clock import SystemClock

_DISK = {DrillFault.FULL_DISK, DrillFault.SLOW_DISK, DrillFault.READ_ONLY_DISK}


def arrive() -> None:
    """Hook this process, where the environment says that it is drilled; torch as soon as it is there.

    Called by the start file that the drill puts on the path of every process (see
    :mod:`failsoft.drills.training.launch`), and by the warm process after a fork.
    """
    orders = read_orders()
    if orders is not None:
        Arrival(orders).carry_out()


class Arrival:
    """One process that is hooked."""

    def __init__(self, orders: Orders) -> None:
        self._marks = Marks(orders.marks)
        self._course = Course(orders, self._marks)
        self._wall = WallClock()
        self._disk = DiskHooks(self._course, SystemClock(), self.strike)

    def carry_out(self) -> None:
        """Hook everything, and strike what is due before the script."""
        if self._course.orders.strikes_of(DrillFault.CLOCK_JUMP):
            self._wall.install()
        if "torch" in sys.modules:
            self._hook_torch(sys.modules["torch"])
        else:
            sys.meta_path.insert(0, _When("torch", self._hook_torch))
        if "safetensors.torch" in sys.modules:
            self._hook_safetensors(sys.modules["safetensors.torch"])
        else:
            sys.meta_path.insert(0, _When("safetensors.torch", self._hook_safetensors))
        self._disk.install()
        if self._marks.first(f"main-{self._course.attempt}"):
            self._marks.introduce("main")
            for strike in list(self._course.met_start()):
                self.strike(strike)

    def strike(self, strike: Strike) -> None:
        """What needs no torch; of a number's fault there is nothing to do outside of a forward pass."""
        if strike.fault.kind in _DISK:
            self._disk.trouble.begin(strike)
        elif strike.fault.kind is DrillFault.CLOCK_JUMP:
            self._wall.jump(strike)
        else:
            act(strike, self._marks)

    def _hook_safetensors(self, module: Any) -> None:
        module.save_file = self._disk.around_save_file(module.save_file)

    def _hook_torch(self, torch: Any) -> None:
        found = importlib.import_module("failsoft.drills.training.inside.torch_hooks")  # it loads torch, we must not
        end = found.EndState(self._course)
        found.TorchHooks(self._course, end, self.strike).install()
        torch.save = self._disk.around_torch_save(torch.save)
        atexit.register(end.write)


class _When(MetaPathFinder):
    """Calls somebody when a module was loaded, whoever loads it."""

    def __init__(self, name: str, then: Callable[[ModuleType], None]) -> None:
        self._name = name
        self._then = then

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != self._name:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(fullname)
        if spec is not None and spec.loader is not None:
            spec.loader = _Behind(spec.loader, self._then)
        return spec


class _Behind(Loader):
    """A loader with something behind it."""

    def __init__(self, loader: Loader, then: Callable[[ModuleType], None]) -> None:
        self._loader = loader
        self._then = then

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        self._loader.exec_module(module)
        self._then(module)
