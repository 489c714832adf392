"""The golden cases of convolutions and poolings. The format: generate.py."""

from vectors import Family, label


def add_conv(family, name, op, shapes, permute=None, **attrs):
    draw = family.draw(name)
    x, weight, *bias = shapes
    family.add(name, op, [draw.normal(x, permute=permute), draw.normal(weight)] + [draw.normal(b) for b in bias],
               **attrs)


def conv(family):
    cases = [
        # x, weight, then stride, padding, dilation, groups where they differ from 1, 0, 1, 1
        ([2, 3, 5, 6], [4, 3, 3, 3], {}),
        ([1, 1, 1, 1], [1, 1, 1, 1], {}),
        ([2, 3, 7, 5], [4, 3, 3, 2], {"padding": [1, 1]}),
        ([2, 2, 9, 8], [3, 2, 3, 3], {"stride": [2, 3], "padding": [1, 0]}),
        ([1, 2, 9, 9], [2, 2, 3, 2], {"dilation": [2, 3], "padding": [2, 1]}),
        ([2, 4, 6, 5], [6, 2, 3, 3], {"groups": 2, "padding": [1, 1]}),
        ([2, 3, 5, 5], [6, 1, 3, 3], {"groups": 3, "padding": [1, 1]}),
        ([2, 5, 4, 4], [3, 5, 1, 1], {}),
        ([1, 3, 5, 5], [2, 3, 1, 1], {"stride": [2, 2]}),
        ([1, 1, 2, 3], [2, 1, 3, 3], {"padding": [2, 2], "stride": [2, 1]}),
        ([2, 3, 6, 7], [2, 3, 4, 3], {"padding": "same"}),
        ([2, 3, 6, 7], [2, 3, 2, 3], {"padding": "same", "dilation": [3, 2]}),
        ([2, 3, 6, 7], [2, 3, 2, 3], {"padding": "valid"}),
        ([3, 6, 7], [2, 3, 3, 3], {}),
        ([0, 3, 5, 5], [4, 3, 3, 3], {}),
    ]
    for x, weight, changed in cases:
        attrs = {"stride": [1, 1], "padding": [0, 0], "dilation": [1, 1], "groups": 1} | changed
        add_conv(family, f"conv2d {label(x, weight)} {changed}", "conv2d", [x, weight, weight[:1]], **attrs)
    plain = {"stride": [1, 1], "padding": [0, 0], "dilation": [1, 1], "groups": 1}
    add_conv(family, "conv2d without bias", "conv2d", [[2, 3, 5, 6], [4, 3, 3, 3]], **plain)
    add_conv(family, "conv2d permuted", "conv2d", [[2, 5, 6, 3], [4, 3, 3, 3], [4]], permute=[0, 3, 1, 2], **plain)
    for x, weight, changed in [([2, 3, 9], [4, 3, 3], {}), ([2, 4, 9], [4, 2, 4], {"groups": 2, "stride": 2}),
                               ([1, 2, 11], [3, 2, 3], {"dilation": 3, "padding": 2}), ([3, 9], [4, 3, 2], {}),
                               ([2, 3, 9], [4, 3, 4], {"padding": "same"})]:
        attrs = {"stride": 1, "padding": 0, "dilation": 1, "groups": 1} | changed
        add_conv(family, f"conv1d {label(x, weight)} {changed}", "conv1d", [x, weight, weight[:1]], **attrs)


def conv_transpose(family):
    for x, weight, changed in [
            ([2, 3, 4, 5], [3, 4, 3, 3], {}), ([2, 3, 4, 5], [3, 2, 2, 2], {"stride": [2, 2]}),
            ([1, 3, 4, 5], [3, 2, 3, 4], {"stride": [2, 3], "padding": [1, 1], "output_padding": [1, 2]}),
            ([2, 4, 3, 3], [4, 2, 3, 3], {"groups": 2, "padding": [1, 1]}),
            ([1, 2, 4, 4], [2, 3, 3, 2], {"dilation": [2, 3], "stride": [2, 1], "output_padding": [1, 2]}),
            ([3, 4, 5], [3, 4, 3, 3], {})]:
        attrs = {"stride": [1, 1], "padding": [0, 0], "output_padding": [0, 0], "groups": 1, "dilation": [1, 1]}
        attrs |= changed
        add_conv(family, f"conv_transpose2d {label(x, weight)} {changed}", "conv_transpose2d",
                 [x, weight, [weight[1] * attrs["groups"]]], **attrs)
    for x, weight, changed in [([2, 3, 5], [3, 2, 3], {}), ([2, 4, 5], [4, 1, 4], {"groups": 2, "stride": 2, "padding": 1}),
                               ([4, 5], [4, 2, 3], {"stride": 3, "output_padding": 2})]:
        attrs = {"stride": 1, "padding": 0, "output_padding": 0, "groups": 1, "dilation": 1} | changed
        add_conv(family, f"conv_transpose1d {label(x, weight)} {changed}", "conv_transpose1d",
                 [x, weight, [weight[1] * attrs["groups"]]], **attrs)


def pool(family):
    def add(op, x, changed, attrs, permute=None):
        name = f"{op} {label(x)} {changed}{' permuted' if permute else ''}"
        family.add(name, op, [family.draw(name).distinct(x, permute=permute)], **(attrs | changed))

    both = {"kernel_size": [2, 2], "stride": [2, 2], "padding": [0, 0], "dilation": [1, 1], "ceil_mode": False}
    for x, changed in [([2, 3, 4, 6], {}), ([2, 3, 5, 7], {}), ([2, 2, 5, 7], {"ceil_mode": True}),
                       ([1, 2, 7, 8], {"kernel_size": [3, 3], "stride": [2, 2], "padding": [1, 1]}),
                       ([1, 2, 7, 8], {"kernel_size": [3, 3], "stride": [1, 1]}),
                       ([1, 2, 9, 8], {"kernel_size": [3, 2], "stride": [1, 2], "dilation": [2, 3], "padding": [1, 1]}),
                       ([1, 1, 6, 6], {"kernel_size": [3, 3], "stride": [3, 2], "padding": [1, 0], "ceil_mode": True}),
                       ([3, 4, 4], {}), ([0, 3, 4, 4], {})]:
        add("max_pool2d", x, changed, both)
    add("max_pool2d", [2, 4, 6, 3], {}, both, permute=[0, 3, 1, 2])
    along = {"kernel_size": 2, "stride": 2, "padding": 0, "dilation": 1, "ceil_mode": False}
    for x, changed in [([2, 3, 9], {}), ([2, 9], {"kernel_size": 3, "padding": 1, "ceil_mode": True}),
                       ([2, 3, 9], {"kernel_size": 3, "stride": 1, "dilation": 2})]:
        add("max_pool1d", x, changed, along)
    mean = {"kernel_size": [2, 2], "stride": [2, 2], "padding": [0, 0], "ceil_mode": False, "count_include_pad": True,
            "divisor_override": None}
    for x, changed in [([2, 3, 4, 6], {}), ([2, 3, 5, 7], {"ceil_mode": True}),
                       ([1, 2, 7, 8], {"kernel_size": [3, 3], "stride": [2, 1], "padding": [1, 1]}),
                       ([1, 2, 7, 8], {"kernel_size": [3, 3], "padding": [1, 1], "count_include_pad": False}),
                       ([1, 2, 6, 6], {"kernel_size": [3, 3], "padding": [1, 1], "ceil_mode": True}),
                       ([1, 2, 7, 8], {"kernel_size": [3, 2], "divisor_override": 5}), ([3, 4, 4], {})]:
        add("avg_pool2d", x, changed, mean)
    along = {"kernel_size": 3, "stride": 2, "padding": 1, "ceil_mode": False, "count_include_pad": True}
    for x, changed in [([2, 3, 9], {}), ([2, 8], {"ceil_mode": True, "count_include_pad": False})]:
        add("avg_pool1d", x, changed, along)
    for x, size in [([2, 3, 4, 6], [1, 1]), ([2, 3, 5, 7], [3, 2]), ([1, 2, 3, 4], [5, 7]), ([3, 4, 4], [2, 4])]:
        add("adaptive_avg_pool2d", x, {"output_size": size}, {})
        add("adaptive_max_pool2d", x, {"output_size": size}, {})


def others(family):
    for x, sizes, mode in [([2, 3, 4, 5], [1, 2], "constant"), ([2, 3, 4, 5], [1, 2, 3, 0], "constant"),
                           ([2, 3, 4, 5], [-1, 2, 0, -2], "constant"), ([2, 3, 4, 5], [1, 2, 3, 0, 1, 1], "constant"),
                           ([2, 3, 4, 5], [2, 4, 3, 1], "reflect"), ([2, 3, 4, 5], [2, 6, 3, 1], "replicate"),
                           ([2, 3, 4, 5], [5, 2, 0, 4], "circular"), ([2, 3, 5], [2, 3], "reflect")]:
        name = f"pad {label(x)} {sizes} {mode}"
        family.add(name, "pad", [family.draw(name).normal(x)], pad=sizes, mode=mode)
    for x, attrs in [([2, 3, 4, 5], {"kernel_size": [2, 3]}), ([1, 2, 7, 6], {"kernel_size": [3, 2], "stride": [2, 1],
                      "padding": [1, 1], "dilation": [2, 1]})]:
        attrs = {"dilation": [1, 1], "padding": [0, 0], "stride": [1, 1]} | attrs
        name = f"unfold {label(x)} {attrs}"
        family.add(name, "unfold", [family.draw(name).normal(x)], **attrs)
    for x, size in [([2, 3, 4, 5], [8, 10]), ([1, 2, 5, 7], [3, 4]), ([1, 2, 3, 3], [7, 5]), ([1, 1, 1, 4], [3, 4])]:
        for mode, align in [("nearest", None), ("bilinear", False), ("bilinear", True)]:
            name = f"interpolate {label(x)} to {size} {mode}{' aligned' if align else ''}"
            family.add(name, "interpolate", [family.draw(name).normal(x)], size=size, mode=mode, align_corners=align)
    for x, groups in [([2, 6, 3, 4], 3), ([3, 8], 2), ([2, 4, 5], 1), ([2, 4, 5], 4)]:
        name = f"group_norm {label(x)} in {groups}"
        draw = family.draw(name)
        family.add(name, "group_norm", [draw.normal(x, 2.0, 1.0), draw.away_from_zero([x[1]]), draw.normal([x[1]])],
                   num_groups=groups, eps=1e-5)
    name = "instance_norm"
    draw = family.draw(name)
    family.add(name, "instance_norm", [draw.normal([2, 3, 4, 5], 2.0, 1.0), draw.away_from_zero([3]), draw.normal([3])],
               eps=1e-3)


def spatial():
    family = Family("spatial", grid=64)
    conv(family)
    conv_transpose(family)
    pool(family)
    others(family)
    family.write()
