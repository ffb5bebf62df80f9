// VersionFiles after kill -9. A child process runs a script of operations and is killed at a seeded point.
// The parent knows from a shared page how many operations were complete. The files must hold exactly the
// versions after these operations, or after one more.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <map>
#include <new>
#include <optional>
#include <random>
#include <vector>

#include "store/versions/version_files.h"
#include "tests/support/temporary_folder.h"
#include "tests/unit/store/version_fixture.h"

namespace sluice::store {
namespace {

using test::expect_content;
using test::pushes_of;
using test::small_shape;
using test::value_of;

enum class Operation : uint8_t { kBegin, kFill, kPrepare, kCommit, kDiscard };

// What the files must hold: versions and their generations.
struct Versions {
  std::map<uint64_t, uint64_t> committed;
  std::optional<std::pair<uint64_t, uint64_t>> prepared;
  friend bool operator==(const Versions&, const Versions&) = default;
};

struct Script {
  std::vector<Operation> operations;
  std::vector<Versions> states;  // before each operation, and after the last
  uint64_t first_generation = 0;
};

// Each prepared version has a generation of its own.
Script make_script(const Versions& start, uint64_t generation, std::mt19937& random, size_t rounds) {
  Script script;
  script.first_generation = generation;
  Versions now = start;
  const auto add = [&](Operation operation) {
    script.operations.push_back(operation);
    script.states.push_back(now);
  };
  for (size_t round = 0; round < rounds; ++round) {
    if (!now.prepared) {
      const uint64_t version = now.committed.empty() ? 0 : now.committed.rbegin()->first + 1;
      add(Operation::kBegin);
      add(Operation::kFill);
      add(Operation::kPrepare);
      now.prepared = {version, generation++};
    }
    if (random() % 3 == 0) {
      add(Operation::kDiscard);
    } else {
      add(Operation::kCommit);
      now.committed.insert(*now.prepared);
      if (now.committed.size() > small_shape().kept) now.committed.erase(now.committed.begin());
    }
    now.prepared.reset();
  }
  script.states.push_back(now);
  return script;
}

// Shared with the child.
struct Progress {
  std::atomic<size_t> complete{0};  // operations
};

// Called by the child at each step of a script.
using Checkpoint = void (*)(size_t& countdown);

void run_script(const std::string& folder, const Script& script, Progress& progress, Checkpoint checkpoint,
                size_t countdown, size_t traced_operation) {
  auto files = VersionFiles::open(folder, small_shape(), VersionFiles::OnDamage::kRefuse);
  if (!files) _exit(3);
  VersionWriter writer;
  uint64_t generation = script.first_generation;
  for (size_t i = 0; i < script.operations.size(); ++i) {
    const Operation operation = script.operations[i];
    if (i == traced_operation) raise(SIGSTOP);  // the parent steps from here
    const uint64_t version = files->prepared()    ? *files->prepared()
                             : files->committed() ? *files->committed() + 1
                                                  : 0;
    bool ok = true;
    switch (operation) {
      case Operation::kBegin: ok = files->begin(version, generation, writer).ok(); break;
      case Operation::kFill:
        for (size_t a = 0; a < 2; ++a) {
          for (size_t element = 0; element < 64; ++element) {
            writer.array(a)[element] = value_of(version, generation, a, element);
            checkpoint(countdown);
          }
        }
        break;
      case Operation::kPrepare:
        ok = files->prepare(writer, version + 7, pushes_of(version, generation)).ok();
        ++generation;
        break;
      case Operation::kCommit: ok = files->commit(version).ok(); break;
      case Operation::kDiscard: ok = files->discard(version).ok(); break;
    }
    if (!ok) _exit(4);
    progress.complete.fetch_add(1);
    checkpoint(countdown);
  }
  _exit(0);
}

// Opens the files, checks the content of all versions, and returns which there are.
Versions recovered(const std::string& folder, uint64_t last_version) {
  auto files = VersionFiles::open(folder, small_shape(), VersionFiles::OnDamage::kRefuse);
  Versions versions;
  if (!files) {
    ADD_FAILURE() << files.error().text;
    return versions;
  }
  for (uint64_t v = 0; v <= last_version; ++v) {
    const VersionView view = files->view(v);
    if (!view.valid()) continue;
    expect_content(view, v, view.generation());
    if (files->prepared() == v) {
      versions.prepared = {v, view.generation()};
    } else {
      versions.committed[v] = view.generation();
    }
  }
  return versions;
}

class CrashTest : public testing::Test {
 protected:
  void SetUp() override {
    void* const page = ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ASSERT_NE(page, MAP_FAILED);
    progress_ = new (page) Progress;
  }
  void TearDown() override { ::munmap(progress_, 4096); }

  Script next_script(size_t rounds) {
    progress_->complete = 0;
    Script script = make_script(now_, generation_, random_, rounds);
    generation_ += rounds + 1;
    return script;
  }

  // Compares the files with the script, and continues with what they hold.
  void check(const Script& script) {
    const size_t complete = progress_->complete;
    now_ = recovered(folder_.path(), 1000);
    const bool exact = now_ == script.states[complete];
    const bool one_more = complete + 1 < script.states.size() && now_ == script.states[complete + 1];
    EXPECT_TRUE(exact || one_more) << "after " << complete << " of " << script.operations.size()
                                   << " operations";
    in_operation_ += one_more && !exact ? 1 : 0;
  }

  sluice::test::TemporaryFolder folder_;
  std::mt19937 random_{29};
  Progress* progress_ = nullptr;
  Versions now_;
  uint64_t generation_ = 1;
  size_t in_operation_ = 0;  // kills inside of an operation after its effect
};

// The child kills itself in the middle of a buffer or between operations.
TEST_F(CrashTest, RecoversAfterAKillAtAnyStep) {
  for (int trial = 0; trial < 150 && !HasFailure(); ++trial) {
    SCOPED_TRACE(trial);
    const Script script = next_script(4);
    const size_t steps = random_() % 600;
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      run_script(
          folder_.path(), script, *progress_,
          [](size_t& countdown) {
            if (countdown-- == 0) ::kill(::getpid(), SIGKILL);
          },
          steps, SIZE_MAX);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status) || WEXITSTATUS(status) == 0) << "exit status " << WEXITSTATUS(status);
    check(script);
  }
  EXPECT_GE(now_.committed.rbegin()->first, 100u);
}

// The parent executes one operation of the child by single instructions and kills it after a seeded number of
// them, so kills hit the inside of begin(), prepare(), commit() and discard(), too.
TEST_F(CrashTest, RecoversAfterAKillAtAnyInstruction) {
  std::map<Operation, size_t> longest;  // instructions
  size_t executed = 0;
  int trial = 0;
  // A build with sanitizers executes ten times the instructions, so it makes fewer trials.
  for (; trial < 120 && (executed < 60'000 || longest.size() < 4) && !HasFailure(); ++trial) {
    SCOPED_TRACE(trial);
    const Script script = next_script(2);
    size_t traced = random_() % script.operations.size();
    if (script.operations[traced] == Operation::kFill) ++traced;
    const Operation operation = script.operations[traced];
    // The first time to the end.
    const size_t limit = longest.contains(operation) ? random_() % longest[operation] : SIZE_MAX;
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      if (::ptrace(PTRACE_TRACEME, 0, nullptr, nullptr) != 0) _exit(77);
      run_script(
          folder_.path(), script, *progress_, [](size_t&) {}, 0, traced);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 77)
      GTEST_SKIP() << "needs ptrace: it is not allowed here";
    ASSERT_TRUE(WIFSTOPPED(status)) << status;
    size_t count = 0;
    while (count < limit && progress_->complete == traced) {
      ASSERT_EQ(::ptrace(PTRACE_SINGLESTEP, child, nullptr, nullptr), 0);
      ASSERT_EQ(::waitpid(child, &status, 0), child);
      ASSERT_TRUE(WIFSTOPPED(status)) << status;
      ++count;
    }
    executed += count;
    longest[operation] = std::max(longest[operation], count);
    ::kill(child, SIGKILL);
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    check(script);
  }
  EXPECT_EQ(longest.size(), 4u);
  EXPECT_TRUE(trial < 100 || in_operation_ > 0) << "no kill was between an effect and its return";
}

}  // namespace
}  // namespace sluice::store
