// Client: feeds. Ticks allocate nothing; what opens and copies feeds does.
#pragma once

#include "tickpath/client.hpp"

namespace tickpath {

inline Status Client::open_feed(const Model& model, std::string_view key, Feed& feed, bool anew, Bytes snapshot, std::int64_t timeout_ns) {
    if (const Status status = ready(); status != Status::ok) return status;
    if (key.empty() || wire::characters(key) > key_chars_max) return fail(Status::bad_value, "a feed's key has 1 to 128 characters");
    const OpenFeed message{0, model.handle, key, anew, {snapshot.data, snapshot.size, snapshot.data != nullptr}};
    const std::size_t size = snapshot.size + small_frame_bytes;
    if (snapshot.size > limits_.frame_bytes_max) return fail(Status::bad_value, "the snapshot is longer than the server takes");
    if (outbox_.size() < size) outbox_.resize(size);
    const Status status = ask(message, Tag::feed_opened, timeout_ns, true);
    if (status != Status::ok) return status;
    detail::take_feed(std::move(message_.feed), key, feed);
    const std::uint64_t tick_bytes = feed.tick.fault == nullptr ? feed.tick.request_bytes_at(1) : 0;
    if (tick_bytes > outbox_.size() && tick_bytes <= options_.request_bytes_max) outbox_.resize(static_cast<std::size_t>(tick_bytes));
    return status;
}

inline Status Client::tick(Feed& feed, const Input* inputs, std::size_t input_count, Reply& reply, const Call& call) {
    if (in_flight() > 0) return fail(Status::misuse, "answers are outstanding: receive them first, or use send_tick and receive alone");
    const std::int64_t deadline_ns = deadline(call.timeout_ns);
    std::uint64_t id = 0;
    Status status = begin_tick(feed, inputs, input_count, call, deadline_ns, id);
    if (status != Status::ok) return status;
    status = finish(id, deadline_ns, reply);
    if (is_answer(status) && reply.next_sequence != 0) feed.next_sequence = reply.next_sequence;
    return status;
}

inline Status Client::begin_tick(Feed& feed, const Input* inputs, std::size_t input_count, const Call& call, std::int64_t deadline_ns,
                                 std::uint64_t& id) {
    const Tick message{0, feed.feed, feed.next_sequence, call.budget_ns, call.priority, call.event_time_ns};
    const Status status = begin_request(message, feed.tick, 1, inputs, input_count, deadline_ns, id);
    if (status == Status::ok) feed.next_sequence++;
    return status;
}

inline Status Client::snapshot_feed(const Feed& feed, std::vector<std::uint8_t>& snapshot, std::int64_t timeout_ns) {
    const Status status = ask(SnapshotFeed{0, feed.feed}, Tag::feed_snapshot, timeout_ns, true);
    if (status == Status::ok) snapshot.assign(message_.snapshot.data, message_.snapshot.data + message_.snapshot.size);
    return status;
}

inline Status Client::close_feed(const Feed& feed, std::int64_t timeout_ns) {
    return ask(CloseFeed{0, feed.feed}, Tag::feed_closed, timeout_ns, false);
}

}  // namespace tickpath
