"""Mixing on a Dask cluster: records stay with workers, integers are added up on the way.

The records are divided into shares, runs of the plan's shards, and each worker holds a share in its own
memory. There are as few shares as let a worker hold one, so that little travels: several workers may
hold the same share, and small data lies with every worker as a whole. For a block of rows each share is
sampled and summed where it lies, the sums are joined along a tree of the shares, and the block's noise
is added once, at its root, under the block's key. Published rows come back to the data holder's
process, which writes them, or one worker gathers those of a file and writes it to a store that all
reach (``shared_store``).

**What a task graph holds** is public: a run's random name, and numbers of tables, blocks, rows and
shares. The key and the records never enter it. They are handed to workers beside it, sealed for one
worker at a time (``rng.Mailbox``), since messages pass through the scheduler and may be logged.
Noiseless sums are results of tasks: they stay in workers' memory and pass between workers, so that
these must not spill to disk (refused), and they show as ``<private>`` wherever a log prints a task's
arguments.

**Who can connect** to the scheduler or a worker can run code there and read everything. So every
connection is under TLS with certificates on both sides, also on one machine, which other users share:
a cluster that is started here has credentials of its own (``cluster``). Plain TCP is refused.

**What can go wrong changes nothing.** Every task is a function of the run's key and of public
numbers, so that one that is run twice, or elsewhere, gives the same integers. A worker that
was lost, or that came back empty, is noticed: another gets its share, and the blocks in flight start
again. Workers drop the key and the records when the run ends, or ten minutes after their last task
if the holder's process is gone.

``worker`` is what workers hold and do, ``cluster`` the connection and its checks, ``run`` who holds
what, ``backend`` the order of the work. See ``docs/how-to/clusters.md``.
"""

from privmix.backends.dask.backend import DaskBackend

__all__ = ["DaskBackend"]
