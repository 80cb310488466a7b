#pragma once

namespace braid::wire {
class inbound_frame;
}

namespace braid::client {

/// Takes the answer of a call as it came, for a call of another loop which reads it there.
class answer_sink {
 public:
  virtual void take_answer(const wire::inbound_frame& frame) = 0;

 protected:
  ~answer_sink() = default;
};

}  // namespace braid::client
