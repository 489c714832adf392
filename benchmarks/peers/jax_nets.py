"""The nets of step/nets.cpp in JAX: functions of (parameters by name, x), with batch norms as in training."""
import jax
import jax.numpy as jnp
from jax import lax


def conv(p, name, x, stride=1, padding=0):
    y = lax.conv_general_dilated(x, p[name + ".weight"], (stride, stride), [(padding, padding)] * 2,
                                 dimension_numbers=("NCHW", "OIHW", "NCHW"))
    bias = p.get(name + ".bias")
    return y if bias is None else y + bias[:, None, None]


def batch_norm(p, name, x):
    mean = x.mean((0, 2, 3), keepdims=True)
    variance = x.var((0, 2, 3), keepdims=True)
    scale, shift = p[name + ".weight"][:, None, None], p[name + ".bias"][:, None, None]
    return (x - mean) * lax.rsqrt(variance + 1e-5) * scale + shift


def max_pool(x, window, stride, padding=0):
    return lax.reduce_window(x, -jnp.inf, lax.max, (1, 1, window, window), (1, 1, stride, stride),
                             [(0, 0), (0, 0), (padding, padding), (padding, padding)])


def linear(p, name, x):
    return x @ p[name + ".weight"].T + p[name + ".bias"]


def lenet(p, x):
    x = max_pool(jax.nn.relu(conv(p, "0", x, padding=2)), 2, 2)
    x = max_pool(jax.nn.relu(conv(p, "3", x)), 2, 2).reshape(x.shape[0], -1)
    return linear(p, "11", jax.nn.relu(linear(p, "9", jax.nn.relu(linear(p, "7", x)))))


def block(p, name, x, stride):
    y = jax.nn.relu(batch_norm(p, name + ".bn1", conv(p, name + ".conv1", x, stride, 1)))
    y = batch_norm(p, name + ".bn2", conv(p, name + ".conv2", y, 1, 1))
    if name + ".shortcut.0.weight" in p:
        x = batch_norm(p, name + ".shortcut.1", conv(p, name + ".shortcut.0", x, stride))
    return jax.nn.relu(y + x)


def stages(p, x, first, widths, blocks):
    for stage in range(widths):
        for i in range(blocks):
            x = block(p, str(first), x, 2 if i == 0 and stage > 0 else 1)
            first += 1
    return x.mean((2, 3)), first


def resnet20(p, x):
    x = jax.nn.relu(batch_norm(p, "1", conv(p, "0", x, padding=1)))
    x, end = stages(p, x, 3, 3, 3)
    return linear(p, str(end + 2), x)


def resnet18(p, x):
    x = max_pool(jax.nn.relu(batch_norm(p, "1", conv(p, "0", x, 2, 3))), 3, 2, 1)
    x, end = stages(p, x, 4, 4, 2)
    return linear(p, str(end + 2), x)


def pinn(p, x):
    for layer in (0, 2, 4):
        x = jnp.tanh(linear(p, str(layer), x))
    return linear(p, "6", x)


def heat_loss(p, points):
    """The mean square of u_t - 0.1 u_xx; forwards over backwards, which XLA takes least time for."""
    def residual(point):
        slope = jax.grad(lambda at: pinn(p, at)[0])
        du, ddu = jax.jvp(slope, (point,), (jnp.array([1.0, 0.0]),))
        return du[1] - 0.1 * ddu[0]
    return jnp.mean(jax.vmap(residual)(points) ** 2)


LOSSES = {"pinn": heat_loss}  # of nets whose loss is their own
NETS = {"lenet": lenet, "resnet20": resnet20, "resnet18": resnet18, "pinn": pinn}
