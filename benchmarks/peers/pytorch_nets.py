"""The nets of step/nets.cpp in PyTorch, with the same names of parameters."""
import os

import numpy
import torch
from torch import nn


class Block(nn.Module):
    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.shortcut = nn.Sequential()
        if stride != 1 or inputs != outputs:
            self.shortcut = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x):
        hidden = torch.relu(self.bn1(self.conv1(x)))
        return torch.relu(self.bn2(self.conv2(hidden)) + self.shortcut(x))


def stages(widths, blocks):
    inputs = widths[0]
    for width in widths:
        for i in range(blocks):
            yield Block(inputs, width, 2 if i == 0 and width != widths[0] else 1)
            inputs = width


def lenet():
    return nn.Sequential(nn.Conv2d(1, 6, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(6, 16, 5), nn.ReLU(),
                         nn.MaxPool2d(2), nn.Flatten(), nn.Linear(400, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(),
                         nn.Linear(84, 10))


def resnet20():
    return nn.Sequential(nn.Conv2d(3, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16), nn.ReLU(),
                         *stages([16, 32, 64], 3), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10))


def resnet18():
    return nn.Sequential(nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(),
                         nn.MaxPool2d(3, 2, 1), *stages([64, 128, 256, 512], 2), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
                         nn.Linear(512, 1000))


def pinn():
    return nn.Sequential(nn.Linear(2, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(),
                         nn.Linear(64, 1))


def heat_loss(net, points):
    """The mean square of u_t - 0.1 u_xx."""
    at = points.detach().requires_grad_()
    du, = torch.autograd.grad(net(at).sum(), at, create_graph=True)
    ddu, = torch.autograd.grad(du[:, 0].sum(), at, create_graph=True)
    return (du[:, 1] - 0.1 * ddu[:, 0]).square().mean()


def heat_gradients(net):
    """A compiled function of points: the loss, with the gradients of all parameters. torch.compile takes no second
    backward pass of autograd's, but derivatives of functions."""
    def loss(parameters, points):
        def slope(at):
            return torch.func.grad(lambda at: torch.func.functional_call(net, parameters, (at,))[0])(at)

        def residual(point):
            du, ddu = torch.func.jvp(slope, (point,), (torch.tensor([1.0, 0.0]),))
            return du[1] - 0.1 * ddu[0]
        return torch.func.vmap(residual)(points).square().mean()

    parameters = dict(net.named_parameters())
    compiled = torch.compile(torch.func.grad_and_value(loss))

    def run(points):
        gradients, value = compiled({name: p.detach() for name, p in parameters.items()}, points)
        for name, p in parameters.items():
            p.grad = gradients[name]
        return value
    return run


LOSSES = {"pinn": (heat_loss, heat_gradients)}  # of nets whose loss is their own: eager, compiled
NETS = {"lenet": lenet, "resnet20": resnet20, "resnet18": resnet18, "pinn": pinn}


def make_net(name, folder):
    """The net with the tensors that step_bench wrote to the folder."""
    net = NETS[name]()
    state = {key: torch.from_numpy(numpy.load(os.path.join(folder, key + ".npy"))) for key in net.state_dict()}
    net.load_state_dict(state)
    return net
