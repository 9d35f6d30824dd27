------------------------------- MODULE Versions -------------------------------
\* How versions of a root come and go: builds that reuse what lies there finished, commits, rollbacks, gc with
\* retention, purge, and other roots that refer to this one. README.md says which code does what, and
\* test_model.py gives the constants: those in capitals of mistakes are rules, and each is broken in turn.
\*
\* A unit is a folder: its files, then its mark (entry.json). Requests are atomic, and what takes several may
\* be cut between any two of them. Time is two facts: what is older than the grace, and that the grace is
\* longer than a build.
EXTENDS Naturals, FiniteSets, TLC

CONSTANTS
  Builders, Rollers, Referrers,   \* who builds, rolls back, refers to units from another root
  Units, MaxV,                    \* MaxV: the versions that fit
  Expires, Purges,                \* whether there is retention, and purge
  \* The rules:
  Refreshes,       \* a build that takes a finished unit writes its mark again, then looks at it once more
  GraceCovers,     \* the grace is longer than any build, rollback or reference takes
  OwnIsSuccess,    \* "exists" with one's own bytes is success: the answer to the first attempt was lost
  Announces,       \* gc notes what it is about to delete
  LooksAgain,      \* and then looks again whether that is old and needed by nobody
  ChecksRemovals,  \* a build looks for such notes before it commits, waits, and sees that all is there
  ExpiryWaits,     \* a version that retention drops still counts for a grace
  NotesCount,      \* gc counts what other roots refer to
  NoteFirst,       \* whoever refers leaves its note before it looks and commits
  TombFirst,       \* purge leaves the tombstone before it erases
  HonoursTombs,    \* a build leaves out what has a tombstone
  LeavesOutPurged, \* so does a rollback
  PurgeWaits       \* purge is done once builds that began before its tombstone have ended

VARIABLES
  files, marks,          \* units whose files, whose marks are there
  oldFiles, oldMarks,    \* those older than the grace
  versions,              \* by number: who committed it, the units it names, the tombstones its maker saw
  expired, lapsed,       \* versions that retention dropped; those for which the grace is over
  pc, base, from, want, has, hand, touched, seen,  \* of actors: see Start, RollBack, Refer
  told,                  \* what became of a commit, as its maker was told
  gc,                    \* the unit that gc has in hand
  noted, removing,       \* units that gc noted lately; those of which it didn't say yet that it is done
  tombs, purged,         \* units with a tombstone; those of which purge said that nothing is left
  notes, elsewhere       \* units of which another root left a note; those that it refers to

store == <<files, marks, oldFiles, oldMarks>>
actors == <<pc, base, from, want, has, hand, touched, seen, told>>
retention == <<expired, lapsed>>
removals == <<noted, removing>>
purges == <<tombs, purged>>
others == <<notes, elsewhere>>
vars == <<store, versions, retention, actors, gc, removals, purges, others>>

Makers == Builders \cup Rollers
Actors == Makers \cup Referrers
Numbers == 1..MaxV
Nobody == [by |-> "nobody", names |-> {}, seen |-> {}]
Idle == [unit |-> "none", step |-> "idle"]

Init ==
  /\ files = {} /\ marks = {} /\ oldFiles = {} /\ oldMarks = {}
  /\ versions = [v \in Numbers |-> Nobody]
  /\ expired = {} /\ lapsed = {}
  /\ pc = [a \in Actors |-> "idle"] /\ base = [a \in Actors |-> 0] /\ from = [a \in Actors |-> 0]
  /\ want = [a \in Actors |-> {}] /\ has = [a \in Actors |-> {}] /\ touched = [a \in Actors |-> {}]
  /\ hand = [a \in Actors |-> Idle] /\ seen = [a \in Actors |-> {}]
  /\ told = [a \in Actors |-> "nothing"]
  /\ gc = Idle /\ noted = {} /\ removing = {}
  /\ tombs = {} /\ purged = {} /\ notes = {} /\ elsewhere = {}

Exists(v) == v \in Numbers /\ versions[v].by # "nobody"
Newest == Cardinality({v \in Numbers : Exists(v)})
NamesOf(v) == IF Exists(v) THEN versions[v].names ELSE {}
IsActive(a) == pc[a] \notin {"idle", "done"}
Allowed == IF HonoursTombs THEN Units \ tombs ELSE Units

\* What gc may not touch.
Named == UNION {NamesOf(v) : v \in Numbers \ (IF ExpiryWaits THEN lapsed ELSE expired)}
Protected == Named \cup (IF NotesCount THEN notes ELSE {})

\* What an actor knew goes with it: states that differ in nothing else are one.
Forget(a) ==
  /\ want' = [want EXCEPT ![a] = {}] /\ has' = [has EXCEPT ![a] = {}] /\ touched' = [touched EXCEPT ![a] = {}]
  /\ hand' = [hand EXCEPT ![a] = Idle] /\ seen' = [seen EXCEPT ![a] = {}] /\ from' = [from EXCEPT ![a] = 0]
Keep == UNCHANGED <<from, want, has, hand, touched, seen>>

\* --- builds

\* A build plans on the newest version. It keeps what that one names, unread, and looks for the others.
Start(b) ==
  /\ pc[b] = "idle" /\ Newest < MaxV
  /\ \E S \in SUBSET Allowed :
       /\ want' = [want EXCEPT ![b] = S]
       /\ has' = [has EXCEPT ![b] = S \cap NamesOf(Newest)]
  /\ base' = [base EXCEPT ![b] = Newest] /\ seen' = [seen EXCEPT ![b] = tombs]
  /\ touched' = [touched EXCEPT ![b] = {}]
  /\ pc' = [pc EXCEPT ![b] = "work"]
  /\ UNCHANGED <<from, hand, told, store, versions, retention, gc, removals, purges, others>>

Take(b) ==
  /\ pc[b] = "work" /\ hand[b] = Idle
  /\ \E u \in want[b] \ has[b] :
       IF u \in marks /\ u \in files
       THEN IF Refreshes
            THEN /\ hand' = [hand EXCEPT ![b] = [unit |-> u, step |-> "touch"]] /\ UNCHANGED has
            ELSE /\ has' = [has EXCEPT ![b] = @ \cup {u}] /\ UNCHANGED hand
       ELSE /\ hand' = [hand EXCEPT ![b] = [unit |-> u, step |-> "files"]] /\ UNCHANGED has
  /\ UNCHANGED <<pc, base, from, want, touched, seen, told, store, versions, retention, gc, removals, purges, others>>

Touch(b) ==
  /\ hand[b].step = "touch"
  /\ marks' = marks \cup {hand[b].unit} /\ oldMarks' = oldMarks \ {hand[b].unit}
  /\ touched' = [touched EXCEPT ![b] = @ \cup {hand[b].unit}]
  /\ hand' = [hand EXCEPT ![b].step = "look"]
  /\ UNCHANGED <<files, oldFiles, pc, base, from, want, has, seen, told, versions, retention, gc, removals, purges, others>>

Look(b) ==
  /\ hand[b].step = "look"
  /\ IF hand[b].unit \in files /\ hand[b].unit \in marks
     THEN /\ has' = [has EXCEPT ![b] = @ \cup {hand[b].unit}] /\ hand' = [hand EXCEPT ![b] = Idle]
     ELSE /\ hand' = [hand EXCEPT ![b].step = "files"] /\ UNCHANGED has
  /\ UNCHANGED <<pc, base, from, want, touched, seen, told, store, versions, retention, gc, removals, purges, others>>

WriteFiles(b) ==
  /\ hand[b].step = "files"
  /\ files' = files \cup {hand[b].unit} /\ oldFiles' = oldFiles \ {hand[b].unit}
  /\ touched' = [touched EXCEPT ![b] = @ \cup {hand[b].unit}]
  /\ hand' = [hand EXCEPT ![b].step = "mark"]
  /\ UNCHANGED <<marks, oldMarks, pc, base, from, want, has, seen, told, versions, retention, gc, removals, purges, others>>

WriteMark(b) ==
  /\ hand[b].step = "mark"
  /\ marks' = marks \cup {hand[b].unit} /\ oldMarks' = oldMarks \ {hand[b].unit}
  /\ has' = [has EXCEPT ![b] = @ \cup {hand[b].unit}]
  /\ hand' = [hand EXCEPT ![b] = Idle]
  /\ UNCHANGED <<files, oldFiles, pc, base, from, want, touched, seen, told, versions, retention, gc, removals, purges, others>>

Ready(b) ==
  /\ pc[b] = "work" /\ hand[b] = Idle /\ has[b] = want[b]
  /\ pc' = [pc EXCEPT ![b] = IF ChecksRemovals THEN "check" ELSE "commit"]
  /\ UNCHANGED <<base, from, want, has, hand, touched, seen, told, store, versions, retention, gc, removals, purges, others>>

\* It waits where gc isn't done, and gives up where something is gone.
Check(b) ==
  LET found == touched[b] \cap noted IN
  /\ pc[b] = "check" /\ found \cap removing = {}
  /\ IF found \subseteq files \cap marks
     THEN pc' = [pc EXCEPT ![b] = "commit"] /\ UNCHANGED base /\ Keep
     ELSE pc' = [pc EXCEPT ![b] = "idle"] /\ base' = [base EXCEPT ![b] = 0] /\ Forget(b)
  /\ UNCHANGED <<told, store, versions, retention, gc, removals, purges, others>>

\* --- rollback: a new version of the units of an old one

RollBack(r) ==
  /\ pc[r] = "idle" /\ Newest < MaxV
  /\ \E v \in Numbers : Exists(v) /\ v \notin expired
       /\ from' = [from EXCEPT ![r] = v]
       /\ want' = [want EXCEPT ![r] = versions[v].names \ (IF LeavesOutPurged THEN tombs ELSE {})]
  /\ base' = [base EXCEPT ![r] = Newest] /\ seen' = [seen EXCEPT ![r] = tombs]
  /\ pc' = [pc EXCEPT ![r] = "commit"]
  /\ UNCHANGED <<has, hand, touched, told, store, versions, retention, gc, removals, purges, others>>

\* --- the commit: created if absent; its answer may be lost, and the request is then sent again

Create(m) ==
  LET v == base[m] + 1 IN
  /\ pc[m] = "commit"
  /\ \/ /\ ~Exists(v)
        /\ versions' = [versions EXCEPT ![v] = [by |-> m, names |-> want[m], seen |-> seen[m]]]
        /\ \/ pc' = [pc EXCEPT ![m] = "done"] /\ told' = [told EXCEPT ![m] = "ok"] /\ Forget(m)
           \/ pc' = [pc EXCEPT ![m] = "lost"] /\ UNCHANGED told /\ Keep
     \/ /\ Exists(v) /\ UNCHANGED versions
        /\ pc' = [pc EXCEPT ![m] = "done"] /\ Forget(m)
        /\ told' = [told EXCEPT ![m] = IF OwnIsSuccess /\ versions[v].names = want[m] THEN "ok" ELSE "refused"]
  /\ UNCHANGED <<base, store, retention, gc, removals, purges, others>>

SendAgain(m) ==
  /\ pc[m] = "lost" /\ pc' = [pc EXCEPT ![m] = "commit"]
  /\ UNCHANGED <<base, from, want, has, hand, touched, seen, told, store, versions, retention, gc, removals, purges, others>>

Crash(a) ==
  /\ IsActive(a)
  /\ pc' = [pc EXCEPT ![a] = "idle"] /\ base' = [base EXCEPT ![a] = 0] /\ Forget(a)
  /\ UNCHANGED <<told, store, versions, retention, gc, removals, purges, others>>

\* --- time

MayAge(u) == GraceCovers => \A a \in Actors : IsActive(a) => u \notin touched[a]
Age ==
  /\ \E u \in Units :
       \/ /\ u \in files \ oldFiles /\ MayAge(u) /\ oldFiles' = oldFiles \cup {u} /\ UNCHANGED oldMarks
       \/ /\ u \in marks \ oldMarks /\ MayAge(u) /\ oldMarks' = oldMarks \cup {u} /\ UNCHANGED oldFiles
  /\ UNCHANGED <<files, marks, versions, retention, actors, gc, removals, purges, others>>

Expire ==
  /\ Expires /\ \E v \in 1..(Newest - 1) : v \notin expired /\ expired' = expired \cup {v}
  /\ UNCHANGED <<lapsed, store, versions, actors, gc, removals, purges, others>>

Lapse ==
  /\ \E v \in expired \ lapsed :
       /\ GraceCovers => \A a \in Rollers \cup Referrers : IsActive(a) => from[a] # v
       /\ lapsed' = lapsed \cup {v}
  /\ UNCHANGED <<expired, store, versions, actors, gc, removals, purges, others>>

\* --- gc

\* A unit that looks finished is as old as its mark, one that doesn't is as old as its files.
IsGarbage(u) ==
  /\ u \notin Protected
  /\ IF u \in marks THEN u \in oldMarks ELSE u \in oldFiles

Choose ==
  /\ gc = Idle
  /\ \E u \in Units : IsGarbage(u) /\ gc' = [unit |-> u, step |-> IF Announces THEN "note" ELSE "look"]
  /\ UNCHANGED <<removals, store, versions, retention, actors, purges, others>>

NoteRemoval ==
  /\ gc.step = "note"
  /\ noted' = noted \cup {gc.unit} /\ removing' = removing \cup {gc.unit}
  /\ gc' = [gc EXCEPT !.step = "look"]
  /\ UNCHANGED <<store, versions, retention, actors, purges, others>>

LookAgain ==
  /\ gc.step = "look"
  /\ gc' = [gc EXCEPT !.step = IF LooksAgain => IsGarbage(gc.unit) THEN "mark" ELSE "done"]
  /\ UNCHANGED <<removals, store, versions, retention, actors, purges, others>>

DeleteMark ==
  /\ gc.step = "mark"
  /\ marks' = marks \ {gc.unit} /\ oldMarks' = oldMarks \ {gc.unit}
  /\ gc' = [gc EXCEPT !.step = "files"]
  /\ UNCHANGED <<removals, files, oldFiles, versions, retention, actors, purges, others>>

DeleteFiles ==
  /\ gc.step = "files"
  /\ files' = files \ {gc.unit} /\ oldFiles' = oldFiles \ {gc.unit}
  /\ gc' = [gc EXCEPT !.step = "done"]
  /\ UNCHANGED <<removals, marks, oldMarks, versions, retention, actors, purges, others>>

\* At its end, or when it is killed: then, too, nothing more is deleted.
GcEnds ==
  /\ gc # Idle /\ gc' = Idle /\ removing' = {}
  /\ UNCHANGED <<noted, store, versions, retention, actors, purges, others>>

\* Notes that are older than the grace go.
ForgetNote ==
  /\ \E u \in noted \ removing :
       /\ GraceCovers => \A b \in Builders : IsActive(b) => u \notin want[b]
       /\ noted' = noted \ {u}
  /\ UNCHANGED <<removing, gc, store, versions, retention, actors, purges, others>>

\* --- purge: nothing is left of a log, in whatever version

Bury ==
  /\ Purges /\ \E u \in (IF TombFirst THEN Units ELSE Units \ files) : u \notin tombs /\ tombs' = tombs \cup {u}
  /\ UNCHANGED <<purged, store, versions, retention, actors, gc, removals, others>>

Erase ==
  /\ Purges
  /\ \E u \in (IF TombFirst THEN tombs \ purged ELSE Units) :
       \/ /\ u \in marks /\ marks' = marks \ {u} /\ oldMarks' = oldMarks \ {u} /\ UNCHANGED <<files, oldFiles>>
       \/ /\ u \in files \ marks /\ files' = files \ {u} /\ oldFiles' = oldFiles \ {u}
          /\ UNCHANGED <<marks, oldMarks>>
  /\ UNCHANGED <<versions, retention, actors, gc, removals, purges, others>>

Prove ==
  /\ \E u \in tombs \ purged :
       /\ u \notin files /\ u \notin marks
       /\ PurgeWaits => \A b \in Builders : IsActive(b) => u \in seen[b] \/ u \notin want[b]
       /\ purged' = purged \cup {u}
  /\ UNCHANGED <<tombs, store, versions, retention, actors, gc, removals, others>>

\* --- references: another root comes to need a unit that a version here names

Refer(f) ==
  /\ pc[f] = "idle"
  /\ \E v \in Numbers : Exists(v) /\ v \notin expired /\ \E u \in versions[v].names :
       /\ from' = [from EXCEPT ![f] = v]
       /\ hand' = [hand EXCEPT ![f] = [unit |-> u, step |-> "refer"]]
  /\ pc' = [pc EXCEPT ![f] = IF NoteFirst THEN "note" ELSE "look"]
  /\ UNCHANGED <<base, want, has, touched, seen, told, store, versions, retention, gc, removals, purges, others>>

Note(f) ==
  /\ pc[f] = "note"
  /\ notes' = notes \cup {hand[f].unit}
  /\ pc' = [pc EXCEPT ![f] = IF NoteFirst THEN "look" ELSE "done"]
  /\ UNCHANGED <<elsewhere, base, from, want, has, hand, touched, seen, told, store, versions, retention, gc, removals, purges>>

LookThere(f) ==
  /\ pc[f] = "look"
  /\ pc' = [pc EXCEPT ![f] = IF from[f] \notin expired /\ hand[f].unit \in files THEN "publish" ELSE "done"]
  /\ UNCHANGED <<base, from, want, has, hand, touched, seen, told, store, versions, retention, gc, removals, purges, others>>

Publish(f) ==
  /\ pc[f] = "publish"
  /\ elsewhere' = elsewhere \cup {hand[f].unit}
  /\ pc' = [pc EXCEPT ![f] = IF NoteFirst THEN "done" ELSE "note"]
  /\ UNCHANGED <<notes, base, from, want, has, hand, touched, seen, told, store, versions, retention, gc, removals, purges>>

Next ==
  \/ \E b \in Builders :
       \/ Start(b) \/ Take(b) \/ Touch(b) \/ Look(b) \/ WriteFiles(b) \/ WriteMark(b)
       \/ Ready(b) \/ Check(b)
  \/ \E r \in Rollers : RollBack(r)
  \/ \E m \in Makers : Create(m) \/ SendAgain(m)
  \/ \E f \in Referrers : Refer(f) \/ Note(f) \/ LookThere(f) \/ Publish(f)
  \/ \E a \in Actors : Crash(a)
  \/ Age \/ Expire \/ Lapse
  \/ Choose \/ NoteRemoval \/ LookAgain \/ DeleteMark \/ DeleteFiles \/ GcEnds \/ ForgetNote
  \/ Bury \/ Erase \/ Prove

Spec == Init /\ [][Next]_vars

Whole == (files \cap marks) \cup tombs

\* A version names only what is there, or what was purged.
NoHole == \A v \in Numbers \ expired : NamesOf(v) \subseteq Whole
\* So does whatever refers to this root.
NoHoleElsewhere == elsewhere \subseteq Whole
\* Nobody is told that its own commit was refused.
NoLie == \A m \in Makers : told[m] = "refused" => versions[base[m] + 1].by # m
\* Versions are numbered without gaps.
NoGap == \A v \in Numbers : Exists(v) => \A w \in 1..v : Exists(w)
\* Once purge said so, nothing of it is left.
NoRemains == purged \cap (files \cup marks) = {}
\* What was purged comes back with no version that was begun afterwards.
NoReturn == \A v \in Numbers : NamesOf(v) \cap versions[v].seen = {}
\* A version never changes.
Immutable == [][\A v \in Numbers : Exists(v) => versions'[v] = versions[v]]_versions

Symmetry == Permutations(Builders) \cup Permutations(Units)
================================================================================
