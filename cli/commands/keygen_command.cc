// Implements `sluice keygen`: creates a pool key, or derives the token of one job from a pool key.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <string_view>

#include "bench/e2e/process/exit_codes.h"
#include "bench/e2e/report/output.h"
#include "cli/commands/commands.h"
#include "cli/options/option_set.h"
#include "config/secret_file.h"
#include "wire/handshake.h"

namespace sluice::cli {
namespace {

using bench::Failure;

struct KeygenFlags {
  std::string out;
  std::string job;
  std::string key_file;
};

// The variables SLUICE_JOB and SLUICE_KEY_FILE of workers must not make keygen derive a token when the user
// asks for a new key.
bool is_on_command_line(std::string_view name) {
  return std::ranges::any_of(selected_options(), [&](const auto& set) {
    return std::ranges::any_of(set->all, [&](const DeclaredOption& option) {
      return option.name == name && option.origin == Origin::kCommandLine;
    });
  });
}

config::Secret random_secret() {
  config::Secret secret{};
  if (getrandom(secret.data(), secret.size(), 0) != static_cast<ssize_t>(secret.size())) {
    throw Failure(bench::kExitFailure,
                  fmt::format("cannot get random bytes from the system: {}", std::strerror(errno)));
  }
  return secret;
}

// Creates a file that only its owner can read. Never overwrites a file, which may be the key of a running
// pool.
void write_secret(const std::string& path, const std::string& text) {
  struct stat existing {};
  if (stat(path.c_str(), &existing) == 0 && (S_ISCHR(existing.st_mode) || S_ISFIFO(existing.st_mode)))
    return bench::write_result_file(path, text);
  const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (fd < 0) {
    throw Failure(errno == EEXIST ? bench::kExitUsage : bench::kExitFailure,
                  errno == EEXIST ? fmt::format("{} already exists; remove it or choose another file", path)
                                  : fmt::format("cannot create {}: {}", path, std::strerror(errno)));
  }
  const bool written =
      write(fd, text.data(), text.size()) == static_cast<ssize_t>(text.size()) && fsync(fd) == 0;
  const int error = errno;
  close(fd);
  if (!written) {
    unlink(path.c_str());
    throw Failure(bench::kExitFailure, fmt::format("cannot write {}: {}", path, std::strerror(error)));
  }
}

int run_keygen(const KeygenFlags& flags) {
  const bool makes_token = is_on_command_line("--job");
  if (makes_token ? flags.job.empty() || flags.key_file.empty() : is_on_command_line("--key-file")) {
    throw Failure(bench::kExitUsage,
                  "a job token requires --job NAME and the pool key (--key-file or SLUICE_KEY_FILE), a new "
                  "pool key neither option");
  }
  config::Secret secret{};
  if (!makes_token) {
    secret = random_secret();
  } else if (flags.job == wire::kReducerJob) {
    throw Failure(bench::kExitUsage,
                  fmt::format("job \"{}\" stands for the pool key itself: a token of it could "
                              "drain reducers and change models",
                              flags.job));
  } else {
    const auto key = bench::value_or_fail(config::read_secret_file(flags.key_file), bench::kExitConfig);
    secret = wire::job_token(std::as_bytes(std::span(key.secret)), flags.job);
  }
  const std::string text = config::secret_text(secret);
  if (flags.out.empty()) {
    bench::print_result(text);
  } else {
    write_secret(flags.out, text);
  }
  return bench::kExitOk;
}

}  // namespace

void add_keygen_command(CLI::App& program, Command& chosen) {
  CLI::App* app =
      program.add_subcommand("keygen", "create a pool key, or derive the token of one job from it");
  app->footer(
      "  sluice keygen --out pool.key                                          # for the reducers\n"
      "  sluice keygen --job train-7 --key-file pool.key --out train-7.token   # for the job's workers");
  auto flags = std::make_shared<KeygenFlags>();
  OptionSet set(*app);
  set.text("--out", flags->out, "FILE", "new file to write instead of stdout, with mode 0600");
  set.text("--job", flags->job, "NAME",
           "derive the token of this job; without this option, SLUICE_JOB is ignored");
  set.text("--key-file", flags->key_file, "FILE", "with --job: pool key to derive the token from");
  run_when_selected(*app, chosen, flags, run_keygen);
}

}  // namespace sluice::cli
