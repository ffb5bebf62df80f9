/* A reducer as the leader, the owner of shard 0, and the workers that tell it of their pushes: part of store.pml. */

#define ELIGIBLE(r) (told[r] & (IS(TWICE) -> 255 : (IS(LAST_STEP) -> ~taken_by[newest[r]] : ~content[newest[r]])))
#define MAY_BEGIN(r) (LEADS(r) && attempt[r] == 0 && number[newest[r]] < NV)

/* The quorum, the grace and the mode decide which; here it is any. */
inline begin(r, taken) {
  assert(attempts < A);
  attempts++;
  made_in[attempts] = known[AT(r, 0)];
  number[attempts] = number[newest[r]] + 1;
  base[attempts] = newest[r];
  pushes[attempts] = taken;
  content[attempts] = content[newest[r]] | taken;
  attempt[r] = attempts;
  if
  :: IS(LAST_STEP) -> taken_by[attempts] = taken
  :: else
  fi
}

/* One transaction: the current version is the base, and the generations are those of which all PREPARED have come. */
#define OTHER(a, k, s) (number[k] == number[a] && made_in[k] == made_in[a] -> prepared[OF(k, s)] : 0)
#define COUNTED(a, s) (prepared[OF(a, s)] | (IS(ANY_ATTEMPT) -> OTHER(a, 2, s) | OTHER(a, 3, s) : 0))
#define COMPARED(a, s) (IS(COMMIT_ANY) || IS(OLD_OWNER) || IS(LEADER_ONLY) -> COUNTED(a, s) : HAS(COUNTED(a, s), generation[s]))
#define MAY_COMMIT(r, a) \
  (a != 0 && current == base[a] && (known[AT(r, 0)] == generation[0] || IS(COMMIT_ANY) || IS(OLD_OWNER) || IS(OLD_LEADER)) && \
   COMPARED(a, 0) != 0 && COMPARED(a, 1) != 0)

inline commit(r) {
  must_be_held(attempt[r]);
  assert(content[attempt[r]] == (content[current] | pushes[attempt[r]]));
  assert(number[attempt[r]] == number[current] + 1);
  current = attempt[r]
}

/* A commit without an answer is sent again until it is carried out or refused, which is for ever. */
#define MAY_GIVE_UP(r) (IS(UNANSWERED) || (current != attempt[r] && !MAY_COMMIT(r, attempt[r])))

#define ALL_PREPARED(a) (prepared[OF(a, 0)] != 0 && prepared[OF(a, 1)] != 0)
#define CONTAINED(r, p) \
  (HAS(content[newest[r]], p) || (IS(ACK_EARLY) && HAS(pushes[attempt[r]], p) && ALL_PREPARED(attempt[r])) || \
   (IS(BY_NUMBER) && HAS(pushes[attempt[r]], p) && number[attempt[r]] <= number[current]))
inline acknowledge(r, w) {
  assert(HAS(content[current], PUSH(w)));
  told[r] = told[r] & ~BIT(PUSH(w));
  floor = (number[newest[r]] > floor -> number[newest[r]] : floor);
  done[w]++
}

/* A push that has got no answer is staged and told again, to who leads and owns now. */
#define STAGED(p) (HAS(staged[AT(OWNER(0), 0)], p) && HAS(staged[AT(OWNER(1), 1)], p))

#define LEADER_WITH(r, w) \
  :: d_step { \
       UNFINISHED(w) && LEADS(r) && !HAS(told[r], PUSH(w)) && (strays > 0 || !STRAY(r, 0)) && \
       (HAS(content[newest[r]], PUSH(w)) || STAGED(PUSH(w))) -> \
       stray(r, 0); \
       told[r] = told[r] | BIT(PUSH(w)) \
     } \
  :: d_step { UNFINISHED(w) && LEADS(r) && HAS(told[r], PUSH(w)) && CONTAINED(r, PUSH(w)) -> acknowledge(r, w); i = 0 } \
  :: d_step { \
       MAY_BEGIN(r) && (ELIGIBLE(r) & MINE(w)) != 0 && (ELIGIBLE(r) & ~(MINE(w))) != 0 -> \
       i = ELIGIBLE(r) & MINE(w); \
       begin(r, i) \
     }

proctype leader(byte r) {
end:
  do
  LEADER_WITH(r, 0)
  LEADER_WITH(r, 1)
  :: d_step { MAY_BEGIN(r) && ELIGIBLE(r) != 0 -> i = ELIGIBLE(r); begin(r, i) }
  :: d_step { LEADS(r) && MAY_COMMIT(r, attempt[r]) -> commit(r); collect() }
  :: d_step { LEADS(r) && missing[attempt[r]] != 0 && MAY_GIVE_UP(r) -> told[r] = told[r] & ~missing[attempt[r]]; attempt[r] = 0; collect() }
  :: d_step { LEADS(r) && abandons > 0 && attempt[r] != 0 && MAY_GIVE_UP(r) -> abandons--; attempt[r] = 0; collect() }
  :: d_step { LEADS(r) && lates > 0 && attempt[r] != 0 && !late[attempt[r]] -> lates--; late[attempt[r]] = 1 }
  :: d_step { r == 0 && kills > 0 && !killed[0] -> kills--; killed[0] = 1 }
  :: d_step { r == 0 && kills > 0 && !killed[1] -> kills--; killed[1] = 1 }
  od
}
