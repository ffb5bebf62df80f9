/* The parameter service's steps, pulls and takeovers of ADR 22, abstractly: docs/design/protocol-model.md says what is modelled.
 *
 * Sizes are given with -D. What may go wrong, and the error that is planted, are too, or with -DRUN_TIME in pan's environment,
 * so that one pan searches many configurations. The runner, model_test.py, lists those that it checks.
 *
 * A version is named by the attempt that made it, a number that no other attempt has: the model's name for the leader's
 * generation and its count. A message that was sent may be taken at any later time, so messages are kept by attempt and shard
 * and not in queues. The coordinator is a set of registers, and a transaction one step.
 */
#ifndef NR
#define NR 3 /* reducers, 2 or 3 */
#endif
#ifndef P0
#define P0 1 /* pushes of worker 0, one after another */
#endif
#ifndef P1
#define P1 1 /* pushes of worker 1 */
#endif
#ifndef A
#define A 6 /* names of attempts, at most; 1 is the first version's */
#endif

#define NS 2 /* shards */
#define NW 2 /* workers */
#define NV (P0 + P1) /* the last version's number */
#define NONE 255
#define LAST (NR - 1)
#define BIT(i) (1 << (i))
#define HAS(set, i) (((set) >> (i)) & 1)
#define COVERS(a, b) (((a) | (b)) == (a))
#define AT(r, s) ((r) * NS + (s))
#define OF(a, s) ((a) * NS + (s))

/* Pushes are numbered, worker 0's first. */
#define COUNT(w) ((w) == 0 -> P0 : P1)
#define MINE(w) ((w) == 0 -> BIT(P0) - 1 : (BIT(P1) - 1) << P0)
#define PUSH(w) ((w) == 0 -> done[0] : P0 + done[1])
#define UNFINISHED(w) (!killed[w] && done[w] < COUNT(w))

#ifdef RUN_TIME
c_decl {
\#include <stdlib.h>
  static unsigned char given(const char* name) {
    const char* value = getenv(name);
    return value == NULL ? 0 : atoi(value);
  }
};
#define GIVEN(variable, size) c_code { now.variable = given(#size); }
#else
#define GIVEN(variable, size) variable = size
#ifndef CRASHES
#define CRASHES 0
#endif
#ifndef LAPSES
#define LAPSES 0
#endif
#ifndef STRAYS
#define STRAYS 0
#endif
#ifndef RESTARTS
#define RESTARTS 0
#endif
#ifndef KILLS
#define KILLS 0
#endif
#ifndef ABANDONS
#define ABANDONS 0
#endif
#ifndef LATES
#define LATES 0
#endif
#ifndef PULLS
#define PULLS 0
#endif
#ifndef EARLIES
#define EARLIES 0
#endif
#ifndef PLANTED
#define PLANTED 0
#endif
#endif

/* Of no state: for loops. */
hidden byte i;
hidden byte j;
hidden byte k;

/* Of the coordinator. */
byte current = 1;            /* the current version's name */
byte generation[NS] = 1;     /* grows when the owner or the copy changes */
byte owned[NR * NS];         /* the generations in which the reducer was the shard's owner, as bits */
byte copied[NR * NS];        /* ... its copy */

/* Of attempts. */
byte attempts = 1;
byte made_in[A + 1];         /* the leader's generation */
byte number[A + 1];          /* of the version it makes */
byte base[A + 1];            /* the version before it */
byte pushes[A + 1];          /* what STEP names */
byte content[A + 1];         /* the pushes in the version */
bool late[A + 1];            /* STEP may still come to an owner when the leader has given the attempt up */
byte sent[(A + 1) * NS];     /* generations whose owner has sent it to the copy */
byte prepared[(A + 1) * NS]; /* generations whose owner has answered PREPARED */
byte taken_by[A + 1];        /* of LAST_STEP: pushes, as long as the version has its name */
byte missing[A + 1];         /* pushes that an owner had to compute and did not have */

/* Of reducers. */
bool dead[NR];
byte known[NR * NS];         /* the shard's generation as the reducer knows it; 0 after a restart */
byte held[NR * NS * (NV + 1)]; /* the name of the stored version of each number; 0 none */
byte staged[NR * NS];        /* pushes */
byte fed[NR * NS];           /* as an owner without a copy: the version that a new copy has stored, and its reducer */
byte newest[NR];             /* the current version as the reducer knows it */
byte told[NR];               /* as a leader: pushes that workers have told it of */
byte attempt[NR];            /* as a leader: the one under way */

/* Of workers. */
byte done[NW];               /* acknowledged pushes */
bool killed[NW];
bool started;                /* worker 0 has */

/* Of the reader. */
byte pulls;                  /* still to come, one after another */
byte pulled;                 /* the version that it reads; 0 none */
byte got;                    /* shards */
byte got_content;
byte floor;                  /* the version's number that a worker or an earlier pull knows */

/* Of early pulls, of one shard each. */
byte earlies;                /* still to come */
byte early[NS];              /* the attempt that the pull follows; 0 none */
byte early_from[NS];         /* its owner */

/* What may still go wrong. */
byte crashes;                /* reducers that may die, with their disk */
byte lapses;                 /* owners and copies whose lease may end while they live */
byte restarts;               /* reducers that may lose all but their versions */
byte kills;                  /* workers that may die */
byte abandons;               /* attempts that the leader may give up without a reason */
byte strays;                 /* pushes that come to a reducer that has been replaced */
byte lates;                  /* attempts whose messages may come when it has given them up */
byte planted;                /* the error */

#define ACK_EARLY 1          /* a push is acknowledged when all shards are prepared */
#define NOT_STORED 2         /* an owner answers PREPARED before the copy has stored the version */
#define COMMIT_ANY 3         /* PREPARED of old generations are refused as they come; the commit compares the current version alone */
#define OLD_OWNER 4          /* nobody refuses an owner of an old generation */
#define KEEP_PREPARED 5      /* who takes over takes what is prepared for current */
#define READ_BEFORE 6        /* who takes over has read before which version is current */
#define TWICE 7              /* a push that comes again is not looked for in the version */
#define PULL_NEWEST 8        /* a pull reads each owner's newest version */
#define PULL_NUMBER 9        /* a pull reads each owner's version of the number */
#define ANY_ORDER 10         /* an older attempt replaces a newer */
#define COPY_BEHIND 11       /* a new copy is registered though there was a commit since it stored its version */
#define SAME_GENERATION 12   /* a new copy doesn't change the generation */
#define SILENT 13            /* an owner that lacks a push of the step says nothing */
#define OLD_LEADER 14        /* neither the owner of shard 0 nor the commit looks whether the leader is of an old generation */
#define LEADER_ONLY 15       /* the commit compares the leader's generation alone */
#define UNANSWERED 16        /* a leader gives up a step whose commit it doesn't know to be refused */
#define LAST_STEP 17         /* a version holds the identities of its own step alone */
#define BY_NUMBER 18         /* a leader that finds its step's number current takes its commit for carried out */
#define ANY_ATTEMPT 19       /* PREPARED names the number and the leader's generation alone */
#define DISCARDS 20          /* a copy that starts again discards what is prepared in its generation */
#define EARLY_DONE 21        /* an early pull ends when the owner has computed the version */
#define EARLY_ANY 22         /* an early pull ends when a version of its number is current, whichever the owner has computed */
#define IS(error) (planted == error)

#define HELD(r, s, n) held[AT(r, s) * (NV + 1) + (n)]
#define OWNS(r, s) (!dead[r] && HAS(owned[AT(r, s)], known[AT(r, s)])) /* as it believes */
#define LEADS(r) OWNS(r, 0)
#define COPIES(r, s) (!dead[r] && HAS(copied[AT(r, s)], known[AT(r, s)]))
#define COPY_IN(s, g) (HAS(copied[AT(0, s)], g) -> 0 : (HAS(copied[AT(1, s)], g) -> 1 : (HAS(copied[AT(LAST, s)], g) -> LAST : NONE)))
#define OWNER(s) (HAS(owned[AT(0, s)], generation[s]) -> 0 : (HAS(owned[AT(1, s)], generation[s]) -> 1 : LAST))
#define COPY(s) COPY_IN(s, generation[s])
#define MAY_LAPSE(r) (dead[r] || lapses > 0)
#define NEWER(a, b) (made_in[a] > made_in[b] || (made_in[a] == made_in[b] && (a) > (b)))

#define STRAY(r, s) (known[AT(r, s)] != generation[s])
inline stray(r, s) {
  if
  :: STRAY(r, s) -> strays--
  :: else
  fi
}

inline lapse(r) {
  if
  :: !dead[r] -> lapses--
  :: else
  fi
}

/* The owner and the copy of each shard hold the version. */
inline must_be_held(name) {
  for (i : 0 .. NR - 1) {
    for (j : 0 .. NS - 1) {
      assert(dead[i] || !HAS(owned[AT(i, j)] | copied[AT(i, j)], generation[j]) || HELD(i, j, number[name]) == name)
    }
  }
}

/* So that what makes no difference any more is no difference: of an attempt that is not under way the name, while a reducer holds it. */
#define UNDER_WAY(a) ((!dead[0] && attempt[0] == a) || (!dead[1] && attempt[1] == a) || (!dead[LAST] && attempt[LAST] == a))
inline collect() {
  for (k : 2 .. A) {
    if
    :: UNDER_WAY(k) || late[k]
    :: else ->
       base[k] = 0;
       pushes[k] = 0;
       missing[k] = 0;
       for (i : 0 .. NS - 1) {
         sent[OF(k, i)] = 0;
         prepared[OF(k, i)] = 0
       }
       j = (current == k || pulled == k || early[0] == k || early[1] == k);
       for (i : 0 .. NR * NS * (NV + 1) - 1) {
         j = j || held[i] == k
       }
       for (i : 0 .. NR - 1) {
         j = j || newest[i] == k
       }
       for (i : 2 .. A) {
         j = j || base[i] == k
       }
       if
       :: j
       :: else ->
          number[k] = 0;
          made_in[k] = 0;
          content[k] = 0;
          taken_by[k] = 0
       fi
    fi
  }
  do
  :: number[attempts] == 0 && attempts > 1 -> attempts--
  :: else -> break
  od;
  i = 0
}

#include "store_shard.pml"
#include "store_leader.pml"

/* ---- faults ---- */

#define SPARE(r, s) \
  ((HAS(owned[AT(r, s)], generation[s]) == 0 || (COPY(s) != NONE && !dead[(COPY(s) == NONE -> 0 : COPY(s))])) && \
   (HAS(copied[AT(r, s)], generation[s]) == 0 || !dead[OWNER(s)]))

inline forget(r) {
  for (j : 0 .. NS - 1) {
    known[AT(r, j)] = 0;
    staged[AT(r, j)] = 0;
    fed[AT(r, j)] = 0
  }
  newest[r] = 0;
  told[r] = 0;
  attempt[r] = 0
}

proctype faults(byte r) {
end:
  do
  :: d_step {
       crashes > 0 && !dead[r] && SPARE(r, 0) && SPARE(r, 1) ->
       crashes--;
       dead[r] = 1;
       forget(r);
       for (j : 0 .. NS - 1) {
         for (i : 0 .. NV) {
           HELD(r, j, i) = 0
         }
       };
       collect()
     }
  :: d_step {
       restarts > 0 && !dead[r] ->
       restarts--;
       forget(r);
       for (j : 0 .. NS - 1) {
         for (i : 0 .. NV) {
           if
           :: IS(DISCARDS) && i > number[current] -> HELD(r, j, i) = 0
           :: else
           fi
         }
       };
       collect()
     }
  od
}

/* ---- who reads ---- */

#define NEWEST(r, s) (HELD(r, s, NV) != 0 -> HELD(r, s, NV) : (HELD(r, s, 1) != 0 -> HELD(r, s, 1) : HELD(r, s, 0)))
#define SERVED(r, s) (IS(PULL_NEWEST) -> NEWEST(r, s) : HELD(r, s, number[pulled]))
#define SERVES(r, s) (SERVED(r, s) == pulled || (SERVED(r, s) != 0 && (IS(PULL_NEWEST) || IS(PULL_NUMBER))))

#define ACKNOWLEDGED ((BIT(done[0]) - 1) | ((BIT(done[1]) - 1) << P0))

inline read(r, s) {
  i = SERVED(r, s);
  assert(got == 0 || got_content == content[i]);
  got_content = content[i];
  assert(got_content == content[pulled]);
  got = got | BIT(s);
  if
  :: got == BIT(NS) - 1 ->
     floor = (number[pulled] > floor -> number[pulled] : floor);
     pulls--;
     pulled = 0; got = 0; got_content = 0
  :: else
  fi
}

#define PULL_FROM(r) \
  :: d_step { \
       pulls > 0 && pulled == 0 && LEADS(r) && number[newest[r]] >= floor -> \
       pulled = newest[r]; \
       assert(COVERS(content[pulled], ACKNOWLEDGED)) \
     } \
  :: d_step { pulled != 0 && !HAS(got, 0) && OWNS(r, 0) && SERVES(r, 0) -> read(r, 0) } \
  :: d_step { pulled != 0 && !HAS(got, 1) && OWNS(r, 1) && SERVES(r, 1) -> read(r, 1) }

proctype reader() {
end:
  do
  PULL_FROM(0)
  PULL_FROM(1)
#if NR > 2
  PULL_FROM(2)
#endif
  :: d_step { pulled != 0 && pulled != current -> pulled = 0; got = 0; got_content = 0 } /* from the start */
  od
}

/* ---- when nothing moves any more ---- */

proctype judge() {
  byte s;
end:
  timeout ->
  d_step {
    assert(pulls == 0);
    for (s : 0 .. NS - 1) {
      assert(done[s] == COUNT(s) || killed[s]); /* of workers, as many */
      assert(!dead[OWNER(s)]);
      assert((COPY(s) != NONE && !dead[(COPY(s) == NONE -> 0 : COPY(s))]) || NR - dead[0] - dead[1] - (NR > 2 && dead[LAST]) == 1)
    }
  }
}

inline spare(what) {
  do
  :: what > 0 -> what--
  :: break
  od
}

init {
  atomic {
    /* Less may go wrong than may, or what does not move until the next loss would pass for one that moves. */
    GIVEN(crashes, CRASHES);
    GIVEN(lapses, LAPSES);
    GIVEN(strays, STRAYS);
    GIVEN(restarts, RESTARTS);
    GIVEN(kills, KILLS);
    GIVEN(abandons, ABANDONS);
    GIVEN(lates, LATES);
    GIVEN(pulls, PULLS);
    GIVEN(earlies, EARLIES);
    GIVEN(planted, PLANTED);
    spare(crashes);
    spare(lapses);
    spare(restarts);
    spare(kills);
    spare(abandons);
    spare(strays);
    spare(lates);
    made_in[1] = 1;
    for (i : 0 .. NS - 1) {
      owned[AT(i, i)] = BIT(1);
      copied[AT((i + 1) % NR, i)] = BIT(1);
      HELD(i, i, 0) = 1;
      HELD((i + 1) % NR, i, 0) = 1;
      newest[i] = 1
    }
    for (i : 0 .. NR - 1) {
      for (j : 0 .. NS - 1) {
        known[AT(i, j)] = 1;
        run shard(i, j)
      }
      run leader(i);
      run faults(i)
    }
    run reader();
    run judge()
  }
}
