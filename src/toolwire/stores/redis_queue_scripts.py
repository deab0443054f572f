"""The operations of the queue in Redis. Each is one script in `lua/`, so that a record and its place change together.

A script declares every key that it uses, and reads no record but the one it is given. The scripts that find tasks
return their names; the client reads the records, which it can then declare, with the script READ.

The names of kinds, owners, processes and tasks are any bytes. Where several of them are joined, each but the last
stands behind its length.

{prefix}:queue-places   the place of each task: "h", its process and kind; or "r", its number, since when it can be
                        taken, whether it is in line, its kind and owner
{prefix}:queue-ends     the tasks whose record has a deadline, in its order
{prefix}:queue-ages     the ready tasks, by the moment from which on they can be taken
{prefix}:queue-delays   those of them that are not in line yet
{prefix}:queue-lines    "l": the tasks in line, by kind, owner and number; "t": the owners of a kind, by their turn
{prefix}:queue-turns    the turn of each kind ("k") and of each owner of a kind ("o") that has tasks in line
{prefix}:queue-held     the tasks that are held, by process
{prefix}:queue-counts   how many tasks of each kind are ready ("r") and held ("h"); "#" is the number given last
                        and "!" says that all records were compared since this key began
{prefix}:queue-leases   the processes that have a lease, by its end
{prefix}:queue-renewals how often each of them was renewed
{prefix}:queue-processes their names, in the order of the bytes
{prefix}:queue-gone     processes that had tasks when they lost their lease
{prefix}:queue-buried   processes that must not get a lease again, by the moment they lost it

A Redis that evicts keys, or a person who deletes them, may remove any one of these. No script fails or loops then:
a member of an index that the places do not confirm is removed where it is met, a lease is known by any of its three
keys, and MEND builds the indexes again from the places. SCAN finds the values by their keys where the names and the
sizes were lost together. A task that the keys of the KV do not know is in doubt: only
its record says whether it is gone.
"""

from __future__ import annotations

from typing import Final

from toolwire.stores.queue import BURIED_SECONDS, MOST_BURIED, MOST_DUE, MOST_LEASES
from toolwire.stores.redis_scripts import (
    CLOCK_PART,
    IS_FORBIDDEN,
    KV_KEYS,
    KV_PART,
    LIST_PART,
    STORE_PART,
    WHOLE_PART,
    Script,
    read_lua,
)

_QUEUE_KEYS: Final = (
    *("queue-places", "queue-ends", "queue-ages", "queue-delays", "queue-lines", "queue-turns", "queue-held"),
    *("queue-counts", "queue-leases", "queue-renewals"),
)
#: The largest number of places that a single script counts.
_MOST_RECOUNTED: Final = 50_000
#: How many keys of Redis, of any program, one script looks at for values that no index names.
_MOST_SCANNED: Final = 1000
#: The largest number of tasks in doubt that a script returns.
_MOST_DOUBTS: Final = 200

_LEASES: Final = read_lua("shared/leases")

# The names of all members of a hash.
_FIELDS: Final = read_lua("shared/fields")

_PLACES: Final = read_lua("shared/places", MOST_DOUBTS=_MOST_DOUBTS)

_ARE_NAMED: Final = read_lua("shared/are_named")

_FINDING: Final = ("kv-deadlines", "kv-names", "kv-sizes", *_QUEUE_KEYS)

# Returns "written"; "other" and the record that is there; "lost"; "crowded" and names of tasks in doubt; "full" and
# names of values that are over.
CHANGE: Final = Script(
    KV_PART, STORE_PART, _LEASES, _PLACES, read_lua("change"), keys=(*KV_KEYS, *_QUEUE_KEYS), repeatable=True
)

# TAKE, HELD, ORPHANS, WAITING and COUNTS return two lists: the result, and names of tasks in doubt.

# Returns the names of the tasks; nothing for a process without a lease.
TAKE: Final = Script(CLOCK_PART, _LEASES, _PLACES, read_lua("take", MOST_DUE=MOST_DUE), keys=_FINDING)

# Returns how many tasks a process holds, and names of them that come after one.
HELD: Final = Script(CLOCK_PART, _LEASES, _PLACES, read_lua("held"), keys=_FINDING, repeatable=True)

# Returns the records of tasks, in the order of their names; nothing for one that has none.
READ: Final = Script(KV_PART, read_lua("read"), keys=("kv-deadlines",), repeatable=True)

# Returns names and processes of tasks, in turns.
ORPHANS: Final = Script(
    CLOCK_PART, _LEASES, _PLACES, read_lua("orphans"), keys=(*_FINDING, "queue-gone"), repeatable=True
)

# Returns names of tasks.
WAITING: Final = Script(CLOCK_PART, _LEASES, _PLACES, read_lua("waiting"), keys=_FINDING, repeatable=True)

_SHOWN: Final = read_lua("shared/shown")

# Returns "held", process and kind; or "ready", kind, owner and the rest of its delay.
PLACE: Final = Script(
    CLOCK_PART,
    _LEASES,
    _PLACES,
    _SHOWN,
    read_lua("place"),
    keys=("kv-deadlines", "kv-names", "kv-sizes", "queue-places"),
    repeatable=True,
)

# Returns one text: for each name five texts, each behind its length. They are the name and what PLACE returns for it;
# those that are missing are empty. Reading a text takes a client much less time than reading as many replies.
ALL_PLACES: Final = Script(
    CLOCK_PART,
    _LEASES,
    _PLACES,
    LIST_PART,
    _SHOWN,
    read_lua("all_places"),
    keys=("kv-names", "kv-deadlines", "queue-places"),
    repeatable=True,
)

# Returns how many tasks are delayed, how many are orphans, how long the oldest waits, how many leases there are; and a
# letter with a kind, and a number, in turns.
COUNTS: Final = Script(
    CLOCK_PART, _LEASES, _PLACES, read_lua("counts"), keys=(*_FINDING, "queue-gone"), repeatable=True
)

# --- Leases ---

# Returns 1, or 0 for a process that must not get a lease again.
RENEW: Final = Script(
    CLOCK_PART,
    _LEASES,
    read_lua("renew"),
    keys=("queue-leases", "queue-renewals", "queue-processes", "queue-buried"),
    repeatable=True,
)

# Returns 1 when the process has no lease now. Without a number the lease ends in any case, and for good.
BURY: Final = Script(
    CLOCK_PART,
    _LEASES,
    _PLACES,
    read_lua("bury", BURIED_MS=int(BURIED_SECONDS * 1000), LAST_RANK=-(MOST_BURIED + 1)),
    keys=("queue-leases", "queue-renewals", "queue-processes", "queue-buried", "queue-gone", "queue-held"),
    repeatable=True,
)

# Both return processes and the numbers of their last renewals, in turns. A number that is missing is 0.
# A lease of which one key was lost gets it back; without its end it counts as not renewed from now on.
STALE: Final = Script(
    CLOCK_PART,
    _FIELDS,
    _LEASES,
    read_lua("stale", MOST_LEASES=MOST_LEASES),
    keys=("queue-leases", "queue-renewals", "queue-processes"),
    repeatable=True,
)
ALL_LEASES: Final = Script(
    CLOCK_PART,
    _LEASES,
    read_lua("all_leases", MOST_LEASES=MOST_LEASES),
    keys=("queue-processes", "queue-renewals"),
    repeatable=True,
)

# --- Repair ---

# Returns 1 where the indexes do not fit to each other, because a key was lost. Processes that hold tasks and have no
# lease are noted as gone.
GAPS: Final = Script(
    CLOCK_PART,
    _LEASES,
    _PLACES,
    _ARE_NAMED,
    WHOLE_PART,
    read_lua("gaps"),
    keys=(*_FINDING, "queue-gone"),
    repeatable=True,
)

# Adds names of values by their keys, a part at a time, where every index that names them may have been lost. Arguments
# are a token of the caller, which RECOUNT gets too, and the cursor: empty at first. Returns the next cursor, "0" at the
# end, and 0 where the user may not run SCAN.
SCAN: Final = Script(
    CLOCK_PART,
    IS_FORBIDDEN,
    _LEASES,
    WHOLE_PART,
    read_lua("scan", MOST_SCANNED=_MOST_SCANNED),
    keys=("kv-names", "kv-sizes", "queue-leases"),
    repeatable=True,
)

# Adds names of values that only the sizes, the deadlines or the places have.
MEND_NAMES: Final = Script(
    CLOCK_PART,
    _FIELDS,
    _LEASES,
    _PLACES,
    _ARE_NAMED,
    read_lua("mend_names"),
    keys=("kv-names", "kv-sizes", "kv-deadlines", "queue-places", "queue-ages"),
    repeatable=True,
)

# Builds the indexes again for some values, and removes what is known of a value that was lost.
MEND: Final = Script(
    KV_PART, _LEASES, _PLACES, read_lua("mend"), keys=(*KV_KEYS, *_QUEUE_KEYS, "queue-gone"), repeatable=True
)

# Removes members of indexes that the places do not confirm, and counts all places again, unless they are very many.
# Marks the names and the sizes as whole, if no names were lost since the token of SCAN was written.
RECOUNT: Final = Script(
    CLOCK_PART,
    _FIELDS,
    _LEASES,
    _PLACES,
    WHOLE_PART,
    read_lua("recount", MOST_PLACES=_MOST_RECOUNTED, MOST_AGES=2 * _MOST_RECOUNTED),
    keys=(*_FINDING, "kv-bytes"),
    repeatable=True,
)

QUEUE_SCRIPTS: Final = (
    *(CHANGE, TAKE, HELD, READ, ORPHANS, WAITING, PLACE, ALL_PLACES, COUNTS),
    *(RENEW, BURY, STALE, ALL_LEASES),
    *(GAPS, SCAN, MEND_NAMES, MEND, RECOUNT),
)
