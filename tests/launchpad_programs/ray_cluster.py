"""A Ray cluster of two hosts on this machine: `ray_cluster.py FOLDER GPUS`.

The folder is for logs; Ray believes that the second host has so many GPUs.

The hosts have addresses of their own, since a program joins a host that has the head's address.

Prints its address, and the process of the second host's raylet. At a line of standard input it
removes the second host, adds another, and prints the process of that one's raylet; at the end of
standard input it ends.
"""

import os
import sys

import psutil


def main(folder, gpus):
    os.environ.update(RAY_USAGE_STATS_ENABLED="0", RAY_TMPDIR=folder)
    os.mkdir(os.path.join(folder, "ray"))
    from ray.cluster_utils import Cluster

    each = {
        "num_cpus": 1,
        "object_store_memory": 80 * 2**20,
        "include_dashboard": False,
    }
    cluster = Cluster()
    cluster.add_node(**each, node_ip_address="127.0.0.2")
    print(cluster.address, flush=True)
    each |= {"node_ip_address": "127.0.0.3", "num_gpus": gpus}
    second = cluster.add_node(**each)
    print(raylet_of(second), flush=True)
    while sys.stdin.readline():
        cluster.remove_node(second)
        second = cluster.add_node(**each)
        print(raylet_of(second), flush=True)
    cluster.shutdown()


def raylet_of(node):
    (raylet,) = node.all_processes["raylet"]
    return psutil.Process(raylet.process.pid).pid


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
