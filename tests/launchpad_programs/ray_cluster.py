"""A Ray cluster of two hosts on this machine: `ray_cluster.py FOLDER GPUS`.

The folder is for logs; Ray believes that the second host has so many GPUs. The hosts have addresses
of their own, since a program joins a host that has the head's address.

Prints the cluster's address. At a line of standard input it replaces the second host and prints a
line; at the end of standard input it ends.
"""

import os
import sys


def main(folder, gpus):
    os.environ.update(RAY_USAGE_STATS_ENABLED="0", RAY_TMPDIR=folder)
    os.mkdir(os.path.join(folder, "ray"))
    from ray.cluster_utils import Cluster

    each = {"num_cpus": 1, "object_store_memory": 80 * 2**20, "include_dashboard": False}
    cluster = Cluster()
    cluster.add_node(**each, node_ip_address="127.0.0.2")
    each |= {"node_ip_address": "127.0.0.3", "num_gpus": gpus}
    second = cluster.add_node(**each)
    print(cluster.address, flush=True)
    while sys.stdin.readline():
        cluster.remove_node(second)
        second = cluster.add_node(**each)
        print("replaced", flush=True)
    cluster.shutdown()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
