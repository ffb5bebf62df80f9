// The requests of sluice.hpp, over a scripted C API.
#include <gtest/gtest.h>
#include <sluice/sluice.hpp>

namespace {

// The results of the C API, and the number of calls of sluice_wait.
struct Script {
  sluice_status wait = SLUICE_OK;
  sluice_status test = SLUICE_OK;
  int done = 0;
  sluice_status error = SLUICE_OK;  // of sluice_session_error
  int waits = 0;
};
Script script;

}  // namespace

extern "C" {
const char* sluice_status_string(sluice_status) {
  return "scripted";
}
void sluice_options_init_sized(sluice_options*, size_t) {}
sluice_status sluice_session_create(const sluice_options*, sluice_session** session, char*, size_t) {
  *session = reinterpret_cast<sluice_session*>(&script);
  return SLUICE_OK;
}
sluice_status sluice_allreduce_async(sluice_session*, const void*, void*, size_t, sluice_dtype, sluice_op,
                                     sluice_request* request) {
  *request = 1;
  return SLUICE_OK;
}
sluice_status sluice_allreduce(sluice_session*, const void*, void*, size_t, sluice_dtype, sluice_op) {
  return SLUICE_OK;
}
sluice_status sluice_test(sluice_session*, sluice_request, int* done) {
  *done = script.done;
  return script.test;
}
sluice_status sluice_wait(sluice_session*, sluice_request, int) {
  ++script.waits;
  return script.wait;
}
sluice_status sluice_progress(sluice_session*) {
  return SLUICE_OK;
}
sluice_status sluice_session_error(sluice_session*, char* text, size_t size) {
  if (size > 0) text[0] = '\0';
  return script.error;
}
sluice_status sluice_session_stats(sluice_session*, sluice_stats*) {
  return SLUICE_OK;
}
sluice_status sluice_session_close(sluice_session*) {
  return SLUICE_OK;
}
}

namespace sluice::client {
namespace {

class RequestTest : public ::testing::Test {
 protected:
  RequestTest() { script = {}; }
  sluice_status status_thrown_by_wait() {
    try {
      static_cast<void>(request_.wait_for(1));
    } catch (const Error& e) {
      return e.status();
    }
    return SLUICE_OK;
  }
  Session session_{Options{}};
  float x_ = 0;
  Request request_ = session_.allreduce_async(&x_, &x_, 1);
};

TEST_F(RequestTest, StaysOpenAfterATimeout) {
  script.wait = SLUICE_TIMEOUT;
  EXPECT_FALSE(request_.wait_for(1));
  // The session has failed, but this operation still uses its buffers.
  script.error = SLUICE_LOST;
  EXPECT_FALSE(request_.wait_for(1));
  { const Request last = std::move(request_); }
  EXPECT_EQ(script.waits, 3) << "the destructor of an open request must wait";
}

TEST_F(RequestTest, ReturnsTheStatusOfAnOperationThatEndsRightAfterTheTimeout) {
  script.wait = SLUICE_TIMEOUT;
  script.done = 1;
  EXPECT_TRUE(request_.wait_for(1));
  EXPECT_TRUE(request_.wait_for(1)) << "the request has ended";
  EXPECT_EQ(script.waits, 1);
}

TEST_F(RequestTest, ThrowsTheTimeoutOfTheOperationItself) {
  script.wait = SLUICE_TIMEOUT;
  script.test = SLUICE_INVALID_ARGUMENT;  // sluice_wait has reported its end
  EXPECT_EQ(status_thrown_by_wait(), SLUICE_TIMEOUT);
  EXPECT_TRUE(request_.test()) << "the request has ended";
}

TEST_F(RequestTest, ThrowsTheStatusOfAnOperationThatFailsRightAfterTheTimeout) {
  script.wait = SLUICE_TIMEOUT;
  script.test = SLUICE_LOST;
  script.done = 1;
  EXPECT_EQ(status_thrown_by_wait(), SLUICE_LOST);
}

}  // namespace
}  // namespace sluice::client
