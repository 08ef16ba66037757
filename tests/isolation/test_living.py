"""Objects of a class are found by the numbers of their types, whatever those types are."""

import torch

from profiler_ext.torch_compat.living import living


class _Loud(type):
    """A metaclass that nobody may ask anything."""

    def __eq__(cls, other):
        raise AssertionError("compared")

    def __hash__(cls):
        raise AssertionError("hashed")

    def __subclasscheck__(cls, subclass):
        raise AssertionError("asked")


class _Module(torch.nn.Module, metaclass=_Loud):
    pass


def test_instances_of_subclasses_are_found_and_no_code_of_theirs_runs():
    own, other = _Module(), torch.nn.Linear(1, 1)
    found = {id(each) for each in living(torch.nn.Module, torch.optim.Optimizer)}
    assert {id(own), id(other)} <= found
    assert id(other.weight) not in found
    assert id(own) in {id(each) for each in living(_Module)}


def test_an_optimizer_is_found_beneath_its_wrappers():
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)])
    assert any(each is optimizer for each in living(torch.optim.Optimizer))
