/* The data path of ranks that share a host (gpu_client/local/stage.cc, ADR 27), abstractly: arrivals, the use of slots again, the doorbells
 * on which ranks sleep, and the death of a rank. docs/design/protocol-model.md says what is modelled and what is not.
 *
 * Sizes and what may go wrong are given with -D; the runner, model_test.py, lists the configurations it checks. A BUG_...
 * switch plants one error that the properties must find.
 *
 * All words of the segment are sequentially consistent there, as statements are here. Reads of a slot take time, writes are moments: a
 * write in another rank's read is an error. A contribution or result is the number of its piece, plus 1.
 */
#ifndef N
#define N 2 /* ranks, at most 3 */
#endif
#ifndef W
#define W 1 /* window: pieces in flight */
#endif
#ifndef SLOTS
#define SLOTS (2 * W)
#endif
#ifndef Q
#define Q 4 /* pieces */
#endif
#ifndef DEATHS
#define DEATHS 0
#endif
/* Who makes the results of all pieces; 3: any of these, each piece its own. */
#ifndef MAKER
#define MAKER 3
#endif
#define OWNER 0 /* rank q mod N */
#define LAST 1 /* whoever arrives last */
#define EVERYONE 2 /* each rank for itself */

#ifdef BUG_WINDOW
#define WINDOW (W + 1)
#else
#define WINDOW W
#endif

#define SLOT(q) ((q) % SLOTS)
#define EXPECTED(q) (((q) / SLOTS + 1) * N)
#define ALL_ARRIVED(q) (arrivals[SLOT(q)] >= EXPECTED(q))
#define IS_COMPLETE(q) ((maker[q] == EVERYONE && ALL_ARRIVED(q)) || (maker[q] != EVERYONE && result[SLOT(q)] == (q) + 1))
#define NOT_AT(what, i, s) (i >= N || dead[i] || what[i] != (s) + 1)
#define NOBODY_AT(what, s) (NOT_AT(what, 0, s) && NOT_AT(what, 1, s) && NOT_AT(what, 2, s))
#define HOLDS(s, i, q) (i >= N || contribution[(s) * N + i] == (q) + 1)
#define HAS_ENDED(i) (i >= N || dead[i] || ended[i])

byte maker[Q];

/* The segment. */
byte arrivals[SLOTS], result[SLOTS], awaited_arrivals[3], awaited_result[3];
byte contribution[SLOTS * N], sum[SLOTS];
bit failure;
bit rung[3]; /* whether the doorbell's word differs from what its rank has seen */

/* What is in progress: slot + 1. */
byte reading[3], copying[3];
byte done[3], arrived[3], make[3];
bit dead[3], ended[3];

inline check_contributions(q) {
  assert(HOLDS(SLOT(q), 0, q) && HOLDS(SLOT(q), 1, q) && HOLDS(SLOT(q), 2, q))
}

/* Rings the rank `at` if it awaits this of piece q; itself it needs not. One at a time: each look is a moment. */
#define RING(word, at, q)                                        \
  if                                                             \
  :: at < N && at != r && word[at] == (q) + 1 -> rung[at] = 1    \
  :: else                                                        \
  fi
#if N == 2
#define RING_ALL(word, q) RING(word, 1 - r, q)
#else
#define RING_ALL(word, q) RING(word, 0, q); RING(word, 1, q); RING(word, 2, q)
#endif

inline make_result(q) {
  reading[r] = SLOT(q) + 1;
  d_step {
    check_contributions(q);
    assert(NOBODY_AT(copying, SLOT(q)));
    sum[SLOT(q)] = q + 1;
    reading[r] = 0
  };
#ifdef BUG_RING_FIRST
  RING_ALL(awaited_result, q);
  result[SLOT(q)] = q + 1
#else
  result[SLOT(q)] = q + 1;
  RING_ALL(awaited_result, q)
#endif
}

inline arrive() {
  d_step {
    q = arrived[r];
    assert(NOBODY_AT(reading, SLOT(q)));
    contribution[SLOT(q) * N + r] = q + 1
  };
  d_step {
    arrivals[SLOT(q)]++;
    assert(arrivals[SLOT(q)] <= EXPECTED(q));
    last = (arrivals[SLOT(q)] == EXPECTED(q));
    arrived[r]++
  };
  if
  :: last && maker[q] == LAST -> make_result(q)
  :: last && maker[q] != LAST ->
#ifndef BUG_NO_RING
     RING_ALL(awaited_arrivals, q)
#else
     skip
#endif
  :: else
  fi;
  d_step {
    last = 0;
    q = 0
  }
}

inline consume() {
  d_step {
    q = done[r];
    if
    :: maker[q] == EVERYONE -> reading[r] = SLOT(q) + 1
    :: else -> copying[r] = SLOT(q) + 1
    fi
  };
  if
  :: maker[q] == EVERYONE -> check_contributions(q)
  :: else -> assert(sum[SLOT(q)] == q + 1)
  fi;
  d_step {
    reading[r] = 0;
    copying[r] = 0;
    done[r]++;
    q = 0
  }
}

inline announce() {
  awaited_result[r] = (done[r] < arrived[r] -> done[r] + 1 : 0);
  /* A piece that each rank sums for itself comes before those that this rank makes. */
  if
  :: done[r] < arrived[r] && maker[done[r]] == EVERYONE -> awaited_arrivals[r] = done[r] + 1
  :: else -> awaited_arrivals[r] = (make[r] < arrived[r] -> make[r] + 1 : 0)
  fi
}

inline look() {
  has_work = 0;
  if
  :: done[r] < arrived[r] && IS_COMPLETE(done[r]) -> has_work = 1
  :: else ->
     if
     :: make[r] < arrived[r] && ALL_ARRIVED(make[r]) -> has_work = 1
     :: else
#ifndef BUG_FAILURE_UNSEEN
       ->
        if
        :: failure -> has_work = 1
        :: else
        fi
#endif
     fi
  fi
}

inline sleep() {
#ifdef BUG_SEEN_LATE
  announce();
  look();
  rung[r] = 0;
#else
  rung[r] = 0;
#ifdef BUG_LOOK_FIRST
  look();
  announce();
#else
  announce();
  look();
#endif
#endif
  if
  :: !has_work -> rung[r] == 1
  :: else
  fi;
  d_step {
    has_work = 0;
    awaited_result[r] = 0;
    awaited_arrivals[r] = 0
  }
}

proctype Rank(byte r) {
  byte q;
  bit last, has_work;
#if DEATHS > 0
  {
#endif
    do
    :: failure || done[r] == Q -> break
    :: else ->
       d_step {
         do
         :: make[r] < arrived[r] && (maker[make[r]] != OWNER || make[r] % N != r) -> make[r]++
         :: else -> break
         od
       };
       if
       :: make[r] < arrived[r] && ALL_ARRIVED(make[r]) -> 
          q = make[r];
          make_result(q);
          d_step {
            make[r]++;
            q = 0
          }
       :: done[r] < arrived[r] && IS_COMPLETE(done[r]) -> consume()
       :: arrived[r] < Q && arrived[r] < done[r] + WINDOW -> arrive()
       :: else -> sleep()
       fi
    od;
    ended[r] = 1
#if DEATHS > 0
  } unless {
    dead[r]
  }
#endif
}

/* The thread of a rank that watches the others. */
proctype Watch(byte r) {
  byte i;
end:
  (dead[0] || dead[1] || dead[2]);
  {
    failure = 1;
#ifndef BUG_FAILURE_WAKES_NOBODY
    do
    :: i < N -> rung[i] = 1; i++
    :: else -> break
    od
#endif
  } unless {
    dead[r]
  }
}

init {
  byte i;
  atomic {
    do
    :: i < Q ->
       if
       :: MAKER != 3 -> maker[i] = MAKER
       :: MAKER == 3 -> maker[i] = OWNER
       :: MAKER == 3 -> maker[i] = LAST
       :: MAKER == 3 -> maker[i] = EVERYONE
       fi;
       i++
    :: else -> break
    od;
    i = 0;
    do
    :: i < N -> 
       run Rank(i);
#if DEATHS > 0
       run Watch(i);
#endif
       i++
    :: else -> break
    od
  };
  /* Any of the ranks dies at any moment, or none. */
  i = DEATHS;
  do
  :: i > 0 && !dead[0] -> dead[0] = 1; i--
  :: i > 0 && !dead[1] -> dead[1] = 1; i--
  :: i > 0 && !dead[2] && N > 2 -> dead[2] = 1; i--
  :: break
  od;
  /* When nothing moves any more, nobody sleeps. */
  timeout;
  assert(HAS_ENDED(0) && HAS_ENDED(1) && HAS_ENDED(2));
  assert(DEATHS > 0 || (done[0] == Q && done[1] == Q && (N < 3 || done[2] == Q)))
}
