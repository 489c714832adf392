"""step_bench's flags, for the peers that take the same step in Python."""
import argparse


def step_parser(description):
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--data", required=True, help="folder that step_bench --export wrote")
    parser.add_argument("--model", required=True)
    parser.add_argument("--loss", choices=["ce", "mse"], default="ce")
    parser.add_argument("--batch", type=int, required=True)
    parser.add_argument("--optimizer", choices=["sgd", "adam"], required=True)
    parser.add_argument("--momentum", type=float, default=0)
    parser.add_argument("--lr", type=float, default=0)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--blocks", type=int, default=30)
    parser.add_argument("--block-ms", type=float, default=20)
    parser.add_argument("--check-steps", type=int, default=50)
    return parser
