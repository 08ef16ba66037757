"""Modules that are no ordinary ones; each has a layer whose own frame is compiled."""

import sys
import weakref

import torch
from torch import nn
from training import digest


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(8, 8))

    def forward(self, x):
        return x @ self.weight


class Holder(nn.Module):
    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def forward(self, x):
        return self.layer(x)


def plain():
    return Layer()


def made_by_new():
    """No ``__init__`` was run of it; it only lies about."""
    KEPT.append(Layer.__new__(Layer))
    KEPT.append(nn.Module.__new__(nn.Linear))
    return Layer()


def without_super():
    class Without(nn.Module):
        def __init__(self):
            pass

    KEPT.append(Without())
    return Layer()


def odd_named_children():
    class Odd(Layer):
        def named_children(self):
            raise RuntimeError("named_children is mine")

    class Odder(Layer):
        def named_children(self, also):
            return [1, 2, also]

    KEPT.append(Odder())
    return Odd()


def unhashable():
    class Unhashable(Layer):
        __hash__ = None

        def __eq__(self, other):
            raise RuntimeError("do not compare me")

    return Unhashable()


def all_equal():
    class Equal(Layer):
        def __hash__(self):
            return 1

        def __eq__(self, other):
            return True

    KEPT.append(Equal())
    return Equal()


def own_getattr():
    class Forward(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = Layer()

        def __getattr__(self, name):
            if name in ("__code__", "__wrapped__", "forward_of"):
                raise RuntimeError(f"asked for {name}")
            return super().__getattr__(name)

        def forward(self, x):
            return self.inner(x)

    return Forward()


def own_getattribute():
    class Watched(nn.Module):
        def __getattribute__(self, name):
            if name == "named_children":
                raise RuntimeError("asked for children")
            return super().__getattribute__(name)

    KEPT.append(Watched())
    return Layer()


def own_class():
    class Liar:
        @property
        def __class__(self):
            raise RuntimeError("asked for my class")

    KEPT.append(Liar())

    def forward(x):
        liar = KEPT[-1]
        del liar
        return x @ weight

    weight = nn.Parameter(torch.randn(8, 8))

    class Around(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = weight

        def forward(self, x):
            return x @ self.weight

    return Around()


def with_slots():
    class Slotted(Layer):
        __slots__ = ("extra",)

    return Slotted()


def proxy():
    layer = Layer()
    KEPT.append(layer)
    KEPT.append(weakref.proxy(layer))
    dead = Layer()
    KEPT.append(weakref.proxy(dead))
    del dead
    return layer


def lazy():
    class Lazy(nn.Module):
        def __init__(self):
            super().__init__()
            self.own = nn.LazyLinear(8, bias=False)

        def forward(self, x):
            return self.own(x)

    made = Lazy()
    with torch.no_grad():
        made(torch.ones(2, 8))
    return made


def cyclic():
    layer = Layer()
    other = Holder(layer)
    layer._modules["back"] = other
    KEPT.append(other)
    return layer


def other_dict():
    class Children(dict):
        def items(self):
            raise RuntimeError("not like this")

        def __iter__(self):
            raise RuntimeError("nor like this")

    layer, odd = Layer(), Layer()
    odd.__dict__["_modules"] = Children()
    none = Layer()
    none.__dict__["_modules"] = None
    text = Layer()
    text.__dict__["_modules"] = {1: layer, "two": None, "three": "no module"}
    KEPT.extend([odd, none, text])
    return layer


def deleted():
    class Forgetful(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.ModuleList(Layer() for _ in range(2))

        def forward(self, x):
            for layer in self.layers:
                x = layer(x)
                torch._dynamo.graph_break()
            return x

    for _ in range(2):
        model = Forgetful()
        compiled = torch.compile(model)
        compiled(torch.ones(2, 8)).sum().backward()
        del model, compiled
    return Layer()


def own_name():
    """A class whose name is no text that one could count on."""
    return type("L\n<b>\\u00e9", (Layer,), {"forward": lambda self, x: x @ self.weight})()


def mapping():
    """A module that is empty, or says that it is."""

    class Empty(Layer):
        def __len__(self):
            return 0

        def __bool__(self):
            raise RuntimeError("asked for my truth")

    return Empty()


KEPT = []

if __name__ == "__main__":
    torch.manual_seed(0)
    layer = globals()[sys.argv[1]]()
    named = sys.argv[1] == "unhashable"  # torch.compile itself cannot hold it
    compiled = torch.compile(layer.forward if named else layer)
    parameters = [layer.weight] if named else list(layer.parameters())
    optimizer = torch.optim.SGD(parameters, lr=0.01)
    for _ in range(5):
        optimizer.zero_grad()
        loss = compiled(torch.ones(2, 8)).sum()
        loss.backward()
        optimizer.step()
        print(loss.item().hex(), flush=True)
    print(digest(torch.nn.ParameterList(parameters)))
