/* Gives a server that isn't leat, or a dispatcher's own listener, a connection whose handshake it never saw, on kernels that can't be handed one (before
 * Linux 6.9): the handshake is played again between this program, in the client's place, and the kernel. The server's end has numbers, clock and windows of
 * its own then, so that each packet of the connection is translated. docs/decisions/0034-replays.md has the reasons. */
#pragma once
#include "cookie.h"
#include "listener.h"
#include "socket.h"
#include "syncookie.h"
#include "time_wait.h"

#define REPLAYS 1

#define REPLAY_BOTH_END (REPLAY_CLIENT_ENDS | REPLAY_SERVER_ENDS)

/* Live connections have theirs until they end: nothing is evicted. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, REPLAYS_MAX);
	__type(key, struct flow_key);
	__type(value, struct replay);
} replays SEC(".maps");

#define SYN_BYTES 40
/* Told to no client: it only counts until its first packet, which comes next. */
#define SYN_WINDOW 64240

/* What is written anew of a packet: too much for the stack. With masked places no byte is outside, as the verifier sees it. */
struct rewriting {
	__u8 old[64];
	__u8 new[64];
	__u32 at;
	__u32 edges; /* of runs of bytes that are acknowledged selectively, from here on */
	struct flow_key key;
	struct replay replay;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct rewriting);
} rewritings SEC(".maps");

/* SO_MARK's place in a client's first packet while the kernel makes up its mind on the SYN in front of it: the last four bits count how often it has gone round. */
#define WAITS_FOR_ANSWER 0x6c656140
#define ROUNDS_MAX 15

static __always_inline __u32 rounds_of(const struct __sk_buff *skb)
{
	return (skb->mark & ~ROUNDS_MAX) == WAITS_FOR_ANSWER ? (skb->mark & ROUNDS_MAX) + 1 : 0;
}

/* Sends the packet through this program again, behind what the kernel has to do first. */
static __always_inline int go_round(struct __sk_buff *skb, __u32 rounds)
{
	__u32 mark = skb->mark;
	skb->mark = WAITS_FOR_ANSWER + rounds;
	int is_sent = bpf_clone_redirect(skb, skb->ifindex, BPF_F_INGRESS) == 0;
	skb->mark = mark;
	return is_sent;
}

static __always_inline __u16 fold(__s64 sum)
{
	sum = (sum & 0xffff) + (sum >> 16 & 0xffff) + (sum >> 32);
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	return ~sum;
}

/* The SYN that the client sent to who answered it, as far as the server is to know. Its checksum is whole, as the payload has gone. */
static __noinline int write_syn(struct rewriting *rewriting, const struct packet *packet, const struct syn_options *options)
{
	__be32 lengths[2] = { bpf_htonl(SYN_BYTES), bpf_htonl(IPPROTO_TCP) };
	if (!rewriting || !packet || !options)
		return 0;
	struct tcphdr *tcp = (struct tcphdr *)rewriting->new;
	__u8 *at = rewriting->new + sizeof(*tcp);
	__builtin_memset(rewriting, 0, sizeof(*rewriting));
	tcp->source = packet->source_port;
	tcp->dest = packet->destination_port;
	tcp->seq = bpf_htonl(bpf_ntohl(packet->tcp.seq) - 1);
	tcp->doff = SYN_BYTES / 4;
	tcp->syn = 1;
	tcp->window = bpf_htons(SYN_WINDOW);
	__builtin_memset(at, 1, SYN_BYTES - sizeof(*tcp));
	at[0] = 2;
	at[1] = 4;
	at[2] = options->mss >> 8;
	at[3] = options->mss;
	if (options->sack) {
		at[4] = 4;
		at[5] = 2;
	}
	if (options->has_timestamp) {
		__be32 timestamp = bpf_htonl(options->timestamp);
		at[6] = 8;
		at[7] = 10;
		__builtin_memcpy(at + 8, &timestamp, 4);
		__builtin_memset(at + 12, 0, 4);
	}
	if (options->window_scale <= WINDOW_SCALE_MAX) {
		at[17] = 3;
		at[18] = 3;
		at[19] = options->window_scale;
	}
	__s64 sum = bpf_csum_diff(NULL, 0, (__be32 *)rewriting->new, SYN_BYTES, 0);
	if (packet->is_ipv4) {
		__be32 addresses[2] = { mapped_ipv4(packet->source), mapped_ipv4(packet->destination) };
		sum = bpf_csum_diff(NULL, 0, addresses, sizeof(addresses), sum);
	} else {
		sum = bpf_csum_diff(NULL, 0, (__be32 *)packet->source, 16, sum);
		sum = bpf_csum_diff(NULL, 0, (__be32 *)packet->destination, 16, sum);
	}
	tcp->check = fold(bpf_csum_diff(NULL, 0, lengths, sizeof(lengths), sum));
	return 1;
}

/* The IP header's length. */
static __always_inline int set_ip_length(struct __sk_buff *skb, const struct packet *packet, __u16 tcp_bytes)
{
	__be16 from, to = bpf_htons(tcp_bytes);
	__u32 at = ETH_HLEN + offsetof(struct ipv6hdr, payload_len);
	if (!packet->is_ipv4)
		return bpf_skb_store_bytes(skb, at, &to, sizeof(to), BPF_F_RECOMPUTE_CSUM) == 0;
	at = ETH_HLEN + offsetof(struct iphdr, tot_len);
	to = bpf_htons(packet->l4 - ETH_HLEN + tcp_bytes);
	return bpf_skb_load_bytes(skb, at, &from, sizeof(from)) == 0 &&
	       bpf_l3_csum_replace(skb, ETH_HLEN + offsetof(struct iphdr, check), from, to, sizeof(to)) == 0 &&
	       bpf_skb_store_bytes(skb, at, &to, sizeof(to), 0) == 0;
}

/* Has the kernel give what follows to the server's listener, whatever address that has; to this host's own if there is no service, which it finds by itself. */
static __noinline int assign(struct __sk_buff *skb, const struct packet *packet, const struct service *service)
{
	if (!packet)
		return 0;
	struct bpf_sock *listener = service ? find_listener(skb, packet, service->listener, service->listener_port)
					    : find_own_listener(skb, packet);
	if (!listener)
		return 0;
	int is_given = listener->state == BPF_TCP_LISTEN && (!service || bpf_sk_assign(skb, listener, 0) == 0);
	bpf_sk_release(listener);
	return is_given;
}

/* Gives it what ends a handshake of which the kernel has kept nothing, as under a flood of SYNs. */
static __noinline void assign_by_cookie(struct __sk_buff *skb, const struct service *service)
{
	struct packet packet;
	if (!service)
		return;
	read_packet(skb, &packet);
	struct bpf_sock *listener = find_listener(skb, &packet, service->listener, service->listener_port);
	if (!listener)
		return;
	int has_cookie = listener->state == BPF_TCP_LISTEN && has_cookie_of(skb, &packet, listener);
	bpf_sk_release(listener);
	if (has_cookie)
		assign(skb, &packet, service);
}

/* Makes a SYN of a client's first packet, for the listener of `service`; the packet itself follows when the kernel has answered that. Returns whether it's so,
 * or `NO_ROOM`. */
static __noinline int give_to_listener(struct __sk_buff *skb, const struct packet *packet, const struct handshake *handshake,
				       const struct service *service)
{
	__u32 zero = 0;
	struct rewriting *rewriting = bpf_map_lookup_elem(&rewritings, &zero);
	if (!packet || !handshake || !rewriting || !write_syn(rewriting, packet, &handshake->options))
		return 0;
	set_key(&rewriting->key, packet);
	struct replay *replay = &rewriting->replay;
	replay->seen_ns = bpf_ktime_get_coarse_ns();
	replay->sequence = bpf_ntohl(packet->tcp.ack_seq) - 1;
	replay->clock = handshake->options.echo;
	replay->told_scale = handshake->options.window_scale <= WINDOW_SCALE_MAX ? handshake->scale : 0;
	if (bpf_map_update_elem(&replays, &rewriting->key, replay, BPF_ANY) != 0)
		return NO_ROOM;
	/* A server that doesn't listen is found out before anything is changed. */
	if (!assign(skb, packet, service) || !go_round(skb, 0)) {
		bpf_map_delete_elem(&replays, &rewriting->key);
		return 0;
	}
	__u64 l4 = packet->l4 & 127;
	return bpf_skb_change_tail(skb, l4 + SYN_BYTES, 0) == 0 && set_ip_length(skb, packet, SYN_BYTES) &&
	       bpf_skb_store_bytes(skb, l4, rewriting->new, SYN_BYTES, BPF_F_RECOMPUTE_CSUM) == 0;
}

static __always_inline struct replay *find_replay(const struct packet *packet, int is_outward)
{
	struct flow_key key;
	if (is_outward)
		set_outward_key(&key, packet);
	else
		set_key(&key, packet);
	return bpf_map_lookup_elem(&replays, &key);
}

static __always_inline void add_at(__u8 *bytes, __u32 at, __u32 shift)
{
	__u32 number = read_number(bytes, at) + shift;
	bytes[at & 63] = number >> 24;
	bytes[(at + 1) & 63] = number >> 16;
	bytes[(at + 2) & 63] = number >> 8;
	bytes[(at + 3) & 63] = number;
}

/* Returns 0 behind the last option. What follows the options is zero. */
static __always_inline int translate_option(struct rewriting *rewriting, const struct replay *replay, int is_outward)
{
	__u8 *bytes = rewriting->new;
	__u32 at = rewriting->at & 63;
	if (rewriting->edges) {
		add_at(bytes, at, replay->sequence);
		rewriting->edges--;
		rewriting->at = at + 4;
		return 1;
	}
	__u8 kind = bytes[at], size = bytes[(at + 1) & 63];
	if (kind == 1) {
		rewriting->at = at + 1;
		return 1;
	}
	if (kind == 0 || size < 2 || at + size > TCP_OPTIONS_MAX)
		return 0;
	rewriting->at = at + size;
	if (kind == 8 && size == 10) {
		if (is_outward)
			add_at(bytes, at + 2, -replay->clock);
		else
			add_at(bytes, at + 6, replay->clock);
	}
	/* Of what the server has said, in selective acknowledgements (RFC 2018). */
	if (kind == 5 && !is_outward) {
		rewriting->at = at + 2;
		rewriting->edges = size / 4;
	}
	/* It may be the last one, and have its edges still to come. */
	return rewriting->edges || at + size < TCP_OPTIONS_MAX;
}

/* What a step of `bpf_loop` goes by. */
struct translation {
	struct rewriting *rewriting;
	const struct replay *replay;
	int is_outward;
};

static int translate_next_option(__u32 step, struct translation *translation)
{
	return !translate_option(translation->rewriting, translation->replay, translation->is_outward);
}

/* All options, wherever they are. Returns what it adds to the checksum, or a negative number when they couldn't be read. */
static __noinline __s64 translate_options(struct __sk_buff *skb, const struct packet *packet, const struct replay *replay, int is_outward)
{
	__u32 zero = 0;
	struct rewriting *rewriting = bpf_map_lookup_elem(&rewritings, &zero);
	if (!packet || !replay || !rewriting)
		return -1;
	__u64 length = packet->tcp.doff * 4ULL - sizeof(struct tcphdr);
	if (length < 1 || length > TCP_OPTIONS_MAX)
		return -1;
	length = WITHIN(length, sizeof(rewriting->old));
	__builtin_memset(rewriting, 0, sizeof(*rewriting));
	__u32 at = (packet->l4 & 127) + sizeof(struct tcphdr);
	if (bpf_skb_load_bytes(skb, at, rewriting->old, length) < 0)
		return -1;
	__builtin_memcpy(rewriting->new, rewriting->old, sizeof(rewriting->new));
	struct translation translation = { rewriting, replay, is_outward };
	/* None takes less than a byte, nor does an edge. */
	bpf_loop(TCP_OPTIONS_MAX, translate_next_option, &translation, 0);
	if (bpf_skb_store_bytes(skb, at, rewriting->new, length, 0) < 0)
		return -1;
	return bpf_csum_diff((__be32 *)rewriting->old, 64, (__be32 *)rewriting->new, 64, 0);
}

/* Changes a number of the header. Returns what that adds to the checksum, or a negative number when it couldn't be. */
static __always_inline __s64 change_number(struct __sk_buff *skb, __u32 at, __be32 from, __u32 to)
{
	__be32 number = bpf_htonl(to);
	if (bpf_skb_store_bytes(skb, at, &number, sizeof(number), 0) < 0)
		return -1;
	return (__u64)(__u32)~from + number;
}

/* A server's window in the units that its client goes by. */
static __always_inline __be16 told_window(const struct replay *replay, __be16 told)
{
	__u32 window = (__u32)bpf_ntohs(told) << (replay->server_scale & 15) >> (replay->told_scale & 15);
	return bpf_htons(window > 0xffff ? 0xffff : window);
}

/* Gives a packet the numbers, clock and window that its reader takes for the other side's. Returns 0 if it couldn't be: nobody is to see it then. */
static __noinline int translate(struct __sk_buff *skb, const struct packet *packet, const struct replay *replay, int is_outward)
{
	__be32 stamps[3];
	__s64 sum, options = 0;
	if (!packet || !replay)
		return 0;
	__u32 l4 = packet->l4 & 127;
	if (is_outward)
		sum = change_number(skb, l4 + 4, packet->tcp.seq, bpf_ntohl(packet->tcp.seq) - replay->sequence);
	else
		sum = change_number(skb, l4 + 8, packet->tcp.ack_seq, bpf_ntohl(packet->tcp.ack_seq) + replay->sequence);
	if (sum < 0)
		return 0;
	__be16 told = is_outward ? told_window(replay, packet->tcp.window) : packet->tcp.window;
	if (told != packet->tcp.window) {
		if (bpf_skb_store_bytes(skb, l4 + 14, &told, sizeof(told), 0) < 0)
			return 0;
		sum += (__u64)(__u16)~packet->tcp.window + told;
	}
	/* Nearly all packets have nothing but the timestamps. */
	if (packet->tcp.doff == 8 && bpf_skb_load_bytes(skb, l4 + sizeof(struct tcphdr), stamps, sizeof(stamps)) == 0 &&
	    stamps[0] == bpf_htonl(TIMESTAMP_OPTION)) {
		__u32 place = is_outward ? 1 : 2, shift = is_outward ? -replay->clock : replay->clock;
		__be32 from = is_outward ? stamps[1] : stamps[2];
		options = change_number(skb, l4 + sizeof(struct tcphdr) + place * 4, from, bpf_ntohl(from) + shift);
	} else if (packet->tcp.doff > 5) {
		options = translate_options(skb, packet, replay, is_outward);
	}
	if (options < 0)
		return 0;
	sum += options;
	sum = (sum & 0xffffffff) + (sum >> 32);
	sum = (sum & 0xffffffff) + (sum >> 32);
	return bpf_l4_csum_replace(skb, l4 + TCP_CHECKSUM_OFFSET, 0, sum, 0) == 0;
}

/* What nearly all packets are: IPv4, in the middle of a connection, with no options but the timestamps. They're changed where they lie. */
static __noinline int translate_simply(struct __sk_buff *skb, int is_outward)
{
	struct flow_key key;
	struct iphdr *ip;
	struct tcphdr *tcp = simple_tcp(skb, &ip);
	if (!tcp || tcp->syn || tcp->fin || tcp->rst || tcp->doff != 8 || rounds_of(skb))
		return IS_OTHERWISE;
	__be32 *stamps = (__be32 *)(tcp + 1);
	if ((void *)(stamps + 3) > (void *)(long)skb->data_end || stamps[0] != bpf_htonl(TIMESTAMP_OPTION))
		return IS_OTHERWISE;
	map_ipv4(key.client, is_outward ? ip->daddr : ip->saddr);
	map_ipv4(key.vip, is_outward ? ip->saddr : ip->daddr);
	key.client_port = is_outward ? tcp->dest : tcp->source;
	key.vip_port = is_outward ? tcp->source : tcp->dest;
	struct replay *replay = bpf_map_lookup_elem(&replays, &key);
	if (!replay)
		return IS_NOBODYS;
	/* Another may begin with the same ends. */
	if (!replay->is_answered || replay->ends)
		return IS_OTHERWISE;
	__be32 *number = is_outward ? &tcp->seq : &tcp->ack_seq, *stamp = is_outward ? stamps + 1 : stamps + 2;
	__u32 shift = is_outward ? -replay->sequence : replay->sequence, pause = is_outward ? -replay->clock : replay->clock;
	__u64 sum = (__u64)(__u32)~*number + (__u32)~*stamp;
	*number = bpf_htonl(bpf_ntohl(*number) + shift);
	*stamp = bpf_htonl(bpf_ntohl(*stamp) + pause);
	sum += (__u64)*number + *stamp;
	if (is_outward) {
		__be16 told = told_window(replay, tcp->window);
		sum += (__u64)(__u16)~tcp->window + told;
		tcp->window = told;
	} else {
		replay->seen_ns = bpf_ktime_get_coarse_ns();
	}
	sum = (sum & 0xffffffff) + (sum >> 32);
	sum = (sum & 0xffffffff) + (sum >> 32);
	__u32 checksum = ETH_HLEN + sizeof(*ip) + TCP_CHECKSUM_OFFSET;
	return bpf_l4_csum_replace(skb, checksum, 0, sum, 0) == 0 ? IS_TRANSLATED : IS_BROKEN;
}

/* A router's message, as of a segment that's too big: the kernel believes only one that quotes a number of what it has sent. */
static __noinline int translate_error(struct __sk_buff *skb, const struct packet *packet, const struct replay *replay)
{
	__u8 version_and_length;
	__be32 from, to;
	if (!packet || !replay)
		return 0;
	/* Behind the message's header; the segment's own IP header is like the one that was read already. */
	__u32 at = (packet->l4 & 127) + 8;
	if (bpf_skb_load_bytes(skb, at, &version_and_length, 1) < 0)
		return 0;
	at += packet->is_ipv4 ? (version_and_length & 15) * 4 : sizeof(struct ipv6hdr);
	if (bpf_skb_load_bytes(skb, at + 4, &from, sizeof(from)) < 0)
		return 0;
	to = bpf_htonl(bpf_ntohl(from) + replay->sequence);
	/* ICMP's checksum is at the same place in both, and covers what is quoted. */
	return bpf_l4_csum_replace(skb, (packet->l4 & 127) + ICMP6_CHECKSUM_OFFSET, from, to, sizeof(to)) == 0 &&
	       bpf_skb_store_bytes(skb, at + 4, &to, sizeof(to), 0) == 0;
}

/* Whether the kernel, which sees it next, takes a client's goodbye for one: who only guesses numbers ends nothing (RFC 5961, section 3). What there is no socket
 * of by now can't be harmed. */
static __noinline int is_believed(struct __sk_buff *skb, const struct packet *packet)
{
	if (!packet)
		return 0;
	struct bpf_sock *socket = look_up_socket(skb, packet);
	if (!socket)
		return 1;
	int is_believed = 1;
	const struct bpf_tcp_sock *tcp = socket->state == BPF_TCP_LISTEN ? NULL : bpf_tcp_sock(socket);
	if (tcp) {
		__u32 behind = tcp->rcv_nxt - bpf_ntohl(packet->tcp.seq);
		/* A FIN may be heard again, or come with data of which some has come before. After what is lost it will be said again. */
		is_believed = packet->tcp.rst ? behind == 0 : behind <= packet->payload + 1;
	}
	bpf_sk_release(socket);
	return is_believed;
}

/* What a client says, or a router on the way to it. Returns 0 if nobody is to hear it; what isn't on a connection whose handshake has been replayed is left as it
 * is. */
static __noinline int translate_inward(struct __sk_buff *skb, const struct packet *packet)
{
	if (!packet)
		return 0;
	struct replay *replay = packet->kind == PACKET_OTHER ? NULL : find_replay(packet, 0);
	if (!replay || !replay->is_answered)
		return 1;
	if (packet->kind == PACKET_ERROR)
		return translate_error(skb, packet, replay);
	replay->seen_ns = bpf_ktime_get_coarse_ns();
	if ((packet->tcp.fin || packet->tcp.rst) && is_believed(skb, packet))
		replay->ends |= packet->tcp.rst ? REPLAY_SETTLED : REPLAY_CLIENT_ENDS;
	if ((replay->ends & REPLAY_BOTH_END) == REPLAY_BOTH_END && packet->tcp.ack && bpf_ntohl(packet->tcp.ack_seq) == replay->server_end)
		replay->ends |= REPLAY_SETTLED;
	return translate(skb, packet, replay, 0);
}

/* What the server's kernel answers the SYN: by how much the numbers of both sides differ. */
static __noinline void note_answer(struct __sk_buff *skb, const struct packet *packet, struct replay *replay)
{
	struct syn_options options = { .window_scale = NO_WINDOW_SCALE };
	if (!packet || !replay || replay->is_answered)
		return;
	read_options(skb, packet, &options);
	replay->sequence = bpf_ntohl(packet->tcp.seq) - replay->sequence;
	replay->clock = options.has_timestamp ? options.timestamp - replay->clock : 0;
	replay->server_scale = options.window_scale <= WINDOW_SCALE_MAX ? options.window_scale : 0;
	replay->is_answered = 1;
}

/* What a server says. Returns 0 if nobody is to hear it. */
static __noinline int translate_outward(struct __sk_buff *skb)
{
	struct packet packet;
	int found = translate_simply(skb, 1);
	if (found != IS_OTHERWISE)
		return found != IS_BROKEN;
	read_packet(skb, &packet);
	if (packet.kind != PACKET_TCP)
		return 1;
	struct replay *replay = find_replay(&packet, 1);
	if (!replay)
		return 1;
	if (packet.tcp.syn) {
		/* Its client has had another answer long since. */
		note_answer(skb, &packet, replay);
		return 0;
	}
	if (!replay->is_answered)
		return 1;
	if (packet.tcp.fin) {
		replay->server_end = bpf_ntohl(packet.tcp.seq) - replay->sequence + packet.payload + 1;
		replay->ends |= REPLAY_SERVER_ENDS;
	}
	/* One without ACK says only that there was no connection, yet or any more. */
	if (packet.tcp.rst && packet.tcp.ack)
		replay->ends |= REPLAY_SETTLED;
	return translate(skb, &packet, replay, 1);
}

/* The packet that was behind the SYN: it ends the handshake, if the kernel has answered. */
static __noinline int end_handshake(struct __sk_buff *skb, const struct packet *packet, const struct service *service)
{
	__u32 rounds = rounds_of(skb);
	if (!packet)
		return TC_ACT_SHOT;
	struct replay *replay = find_replay(packet, 0);
	if (!replay)
		return TC_ACT_SHOT;
	if (!replay->is_answered) {
		/* Another processor may be about to answer, or nobody is: then its client sends it again. */
		if (rounds <= ROUNDS_MAX)
			go_round(skb, rounds);
		return TC_ACT_SHOT;
	}
	int kind = find_socket(skb, packet);
	skb->mark = 0;
	if (!translate_inward(skb, packet))
		return TC_ACT_SHOT;
	if (kind == SOCKET_NONE && service)
		assign_by_cookie(skb, service);
	return TC_ACT_UNSPEC;
}
