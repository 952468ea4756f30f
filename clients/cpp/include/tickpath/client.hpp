// The tickpath client: one connection to a server, for one thread. Include this.
//
//     tickpath::Client client;
//     if (client.connect("127.0.0.1:7070") != tickpath::Status::ok) return complain(client.error());
//     const tickpath::Model* mlp = client.find("mlp");
//     float x[64] = {...}, y[3];
//     tickpath::Reply reply;
//     if (client.infer(*mlp, 1, {x}, reply) == tickpath::Status::ok && reply.output(0).copy_to(y, 3)) act(y);
//
// Rules
// - Every call returns a Status; what is wrong stands in `error()`, or, where the server refused, in the reply's `message` too.
// - `connect`, `update_models`, `open_feed` and `snapshot_feed` make buffers. No other call allocates, and none throws.
// - What was in flight when a connection ended is never sent again: it may have run. Nothing connects by itself.
// - Replies and their views are good until the next call.
//
// Pipelining: `send` as often as `limits().in_flight_max` allows, and `receive` once for each, in the order in which the server answers;
// `Reply::id` says which it is. `send_tick` is a tick's `send`. All other calls that wait for an answer want to be alone: MISUSE while
// others are outstanding.
//
// Never a deadlock: a server that can't deliver its answers stops reading, so while a request goes out answers are taken in; and no
// request is sent whose answer might not fit beside those that are outstanding (OVERLOADED: receive first, or raise
// `Options::receive_bytes`).
#pragma once

#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "tickpath/detail/asked.hpp"
#include "tickpath/call.hpp"
#include "tickpath/detail/inbox.hpp"
#include "tickpath/messages.hpp"
#include "tickpath/model.hpp"
#include "tickpath/detail/socket.hpp"
#include "tickpath/status.hpp"

#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "tensors travel little-endian, and this client sends memory as it is"
#endif

namespace tickpath {

class Client {
public:
    Client() = default;
    Client(const Client&) = delete;
    Client& operator=(const Client&) = delete;
    ~Client() { close(); }

    // To "host:port", "[::1]:7070" or "unix:/path", in one attempt. BAD_ADDRESS, UNREACHABLE, PROTOCOL_ERROR (what answers there is not
    // tickpath), or the code with which the server refuses the session.
    [[nodiscard]] Status connect(std::string_view address, Options options = Options());

    // Goodbye, and the end; answers that are outstanding are dropped.
    void close();

    bool connected() const { return socket_.open(); }
    // True once either side has said goodbye: no request is taken, what is outstanding is answered. Connect elsewhere.
    bool draining() const { return draining_; }
    // What went wrong last, for people; one line.
    const char* error() const { return error_; }
    const std::string& server() const { return server_; }
    const Limits& limits() const { return limits_; }

    // What the server had when it was asked last.
    const std::vector<Model>& models() const { return models_; }
    // nullptr where there is none. `version` matters only after `update_models(true)`.
    const Model* find(std::string_view model, std::string_view version = {}) const;
    // Asks again: after UNKNOWN_MODEL, or when models may have come. `versions`: every version that is loaded, not only the live ones.
    // Ends the life of every Model given out before.
    [[nodiscard]] Status update_models(bool versions = false, std::int64_t timeout_ns = -1);

    // One prediction. `rows`: as many as lie along the inputs' batch axes; 1 where there are none. The answer's status, or why there is
    // none; after TIMED_OUT the connection stays usable, the request is taken back, and an answer that comes late is dropped.
    [[nodiscard]] Status infer(const Model& model, std::uint64_t rows, const Input* inputs, std::size_t input_count, Reply& reply,
                               const Call& call = Call());
    [[nodiscard]] Status infer(const Model& model, std::uint64_t rows, std::initializer_list<Input> inputs, Reply& reply,
                               const Call& call = Call()) {
        return infer(model, rows, inputs.begin(), inputs.size(), reply, call);
    }

    // Asks, and does not wait. `id` names it in `receive`, `cancel` and `forget`. A refusal means that nothing was sent; TIMED_OUT with
    // `connected()` still true, too.
    [[nodiscard]] Status send(const Model& model, std::uint64_t rows, const Input* inputs, std::size_t input_count, std::uint64_t& id,
                              const Call& call = Call());
    [[nodiscard]] Status send(const Model& model, std::uint64_t rows, std::initializer_list<Input> inputs, std::uint64_t& id,
                              const Call& call = Call()) {
        return send(model, rows, inputs.begin(), inputs.size(), id, call);
    }
    // The next answer, whichever request it belongs to; its status. TIMED_OUT changes nothing. 0 looks at what has come.
    [[nodiscard]] Status receive(Reply& reply, std::int64_t timeout_ns = -1);

    // Takes a request back if it has not started; it is answered all the same.
    [[nodiscard]] Status cancel(std::uint64_t id);
    // The same for one whose answer nobody wants: it is dropped when it comes.
    void forget(std::uint64_t id);

    // Requests sent and not received yet.
    std::size_t in_flight() const { return asked_.awaited(); }

    // A model's feed of this key: as it is, or, where there is none or `anew` says so, an empty one; with `snapshot`, one that holds what
    // `snapshot_feed` gave. `model.handle` must have feeds (ModelInfo.feeds).
    [[nodiscard]] Status open_feed(const Model& model, std::string_view key, Feed& feed, bool anew = false, Bytes snapshot = {},
                                   std::int64_t timeout_ns = -1);
    // One prediction by what is new. The tick's number is `feed.next_sequence`, which then counts on, and after a refusal is what the
    // server says it takes next.
    [[nodiscard]] Status tick(Feed& feed, const Input* inputs, std::size_t input_count, Reply& reply, const Call& call = Call());
    [[nodiscard]] Status tick(Feed& feed, std::initializer_list<Input> inputs, Reply& reply, const Call& call = Call()) {
        return tick(feed, inputs.begin(), inputs.size(), reply, call);
    }
    // Asks, and does not wait, as `send`. After a refusal `Reply::next_sequence` says where the feed is: set `feed.next_sequence`.
    [[nodiscard]] Status send_tick(Feed& feed, const Input* inputs, std::size_t input_count, std::uint64_t& id, const Call& call = Call()) {
        return begin_tick(feed, inputs, input_count, call, deadline(call.timeout_ns), id);
    }
    // What a feed holds, for `open_feed` on this or another server.
    [[nodiscard]] Status snapshot_feed(const Feed& feed, std::vector<std::uint8_t>& snapshot, std::int64_t timeout_ns = -1);
    // The server forgets it.
    [[nodiscard]] Status close_feed(const Feed& feed, std::int64_t timeout_ns = -1);

    // The server's monotonic clock, the one of the stamps, in nanoseconds.
    [[nodiscard]] Status ping(std::uint64_t& server_ns, std::int64_t timeout_ns = -1);

    // Looks at what came without being waited for, between requests: a Goodbye (NOT_READY) or the end (LOST) is better learnt now than by
    // losing a request to it. Costs one system call.
    [[nodiscard]] Status check();

    // Says that no request follows; what is outstanding is answered.
    [[nodiscard]] Status goodbye(std::string_view reason = {});

private:
    // Beyond the answers that are reckoned with: a refusal's text, a Pong, a Goodbye, a version's name that grew.
    static constexpr std::size_t spare_bytes = std::size_t{64} << 10;
    // What a server may say of itself; more in flight hides no round trip.
    static constexpr std::uint64_t in_flight_most = 65536;
    // The largest that is sent before Welcome, and every message without tensors.
    static constexpr std::size_t small_frame_bytes = 16384;
    static constexpr std::int64_t last_words_ns = 100000000;

#if defined(__GNUC__)
    __attribute__((format(printf, 3, 4)))
#endif
    Status fail(Status status, const char* format, ...);
    Status end(Status status, const char* reason);
    Status ended_by_server();
    Status bad_request(const Model& model, std::uint64_t rows, const Input* inputs, std::size_t input_count);
    Status no_room(const Model& model, std::uint64_t rows);
    Status ready();
    Status begin(const Model& model, std::uint64_t rows, const Input* inputs, std::size_t input_count, const Call& call,
                 std::int64_t deadline_ns, std::uint64_t& id);
    Status begin_tick(Feed& feed, const Input* inputs, std::size_t input_count, const Call& call, std::int64_t deadline_ns,
                      std::uint64_t& id);
    template <typename Message>
    Status begin_request(Message message, const Model& model, std::uint64_t rows, const Input* inputs, std::size_t input_count,
                         std::int64_t deadline_ns, std::uint64_t& id);
    Status finish(std::uint64_t id, std::int64_t deadline_ns, Reply& reply);
    template <typename Message>
    Status ask(Message message, Tag answer, std::int64_t timeout_ns, bool may_grow);

    Status greet(const Options& options, std::int64_t deadline_ns);
    Status welcome(std::int64_t deadline_ns);
    void take_models();
    void make_buffers();

    std::int64_t deadline(std::int64_t timeout_ns) const {
        return detail::deadline_after(timeout_ns < 0 ? options_.timeout_ns : timeout_ns);
    }
    template <typename... Message>
    Status transmit(std::int64_t deadline_ns, const Message&... message);
    Status transmit_bytes(std::size_t size, std::int64_t deadline_ns);
    Status take_in(std::int64_t deadline_ns);
    Status hear_last_words();

    Status next_message(std::int64_t deadline_ns, bool may_grow);
    Status fill(std::int64_t deadline_ns);
    Status next_answer(std::int64_t deadline_ns, bool may_grow = false);
    Status settle(bool& delivered);
    bool fits(const detail::Asked& asked) const;

    Options options_;
    detail::Socket socket_;
    detail::Inbox inbox_{0};
    detail::AskedTable asked_;
    ServerMessage message_;
    std::vector<std::uint8_t> outbox_;
    std::vector<Model> models_;
    std::string address_;
    std::string server_;
    Limits limits_;
    std::size_t replies_room_ = 0;
    bool welcomed_ = false;
    bool draining_ = false;
    bool sendable_ = false;
    char error_[512] = "";
};

}  // namespace tickpath

#include "tickpath/detail/connecting.hpp"
#include "tickpath/detail/feeds.hpp"
#include "tickpath/detail/talking.hpp"
