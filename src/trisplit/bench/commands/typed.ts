// A small planner: parses a list of tasks, orders them by what they need, and prints a table.
// Types of every kind that can be erased: unions, brands, generics, an abstract class, a const table. It prints text
// alone, since engines show objects each in their own way.

type Brand<T, Name extends string> = T & { readonly __brand: Name };
type TaskId = Brand<string, 'TaskId'>;
type Minutes = Brand<number, 'Minutes'>;

interface Task {
  readonly id: TaskId;
  readonly title: string;
  readonly takes: Minutes;
  readonly needs: readonly TaskId[];
  readonly tags?: ReadonlySet<string>;
}

type Line =
  | { kind: 'task'; task: Task }
  | { kind: 'comment'; text: string }
  | { kind: 'wrong'; number: number; why: string };

type Outcome<T> = { ok: true; value: T } | { ok: false; why: string };

const minutes = (n: number): Minutes => n as Minutes;
const taskId = (text: string): TaskId => text as TaskId;
const good = <T>(value: T): Outcome<T> => ({ ok: true, value });
const bad = (why: string): Outcome<never> => ({ ok: false, why });

const SOURCE: string = `
# id; title; minutes; needs; tags
dig; dig the ground; 90; ; garden, heavy
bed; lay out the bed; 30; dig; garden
soil; bring in soil; 45; dig; heavy
seed; choose the seeds; 20; ; desk
sow; sow the seeds; 40; bed soil seed; garden
water; water the bed; 15; sow; garden
label; write the labels; 10; seed; desk
fence; mend the fence; 120; ; heavy, wood
gate; hang the gate; 60; fence; wood
note; keep the diary; 5; water label gate; desk
loose; without a number; many; ; odd
`;

function parseMinutes(text: string): Outcome<Minutes> {
  const value = Number(text);
  return Number.isInteger(value) && value > 0 ? good(minutes(value)) : bad(`${text} is no number of minutes`);
}

function parseLine(text: string, number: number): Line {
  if (text.startsWith('#')) return { kind: 'comment', text: text.slice(1).trim() };
  const fields = text.split(';').map((field) => field.trim());
  if (fields.length !== 5) return { kind: 'wrong', number, why: `${fields.length} fields` };
  const [id, title, takes, needs, tags] = fields as [string, string, string, string, string];
  const parsed = parseMinutes(takes);
  if (!parsed.ok) return { kind: 'wrong', number, why: parsed.why };
  const task: Task = {
    id: taskId(id),
    title,
    takes: parsed.value,
    needs: needs === '' ? [] : needs.split(/\s+/).map(taskId),
    tags: new Set(tags.split(',').map((tag) => tag.trim())),
  };
  return { kind: 'task', task };
}

function* linesOf(source: string): Generator<Line, void, undefined> {
  let number = 0;
  for (const text of source.split('\n')) {
    number += 1;
    if (text.trim() !== '') yield parseLine(text, number);
  }
}

abstract class Graph<K, V> {
  protected readonly nodes = new Map<K, V>();
  protected readonly edges = new Map<K, readonly K[]>();

  abstract label(key: K): string;

  add(key: K, value: V, to: readonly K[]): this {
    this.nodes.set(key, value);
    this.edges.set(key, to);
    return this;
  }

  get size(): number {
    return this.nodes.size;
  }

  ordered(): Outcome<V[]> {
    const done = new Map<K, 'open' | 'closed'>();
    const order: V[] = [];
    const visit = (key: K): string | undefined => {
      const state = done.get(key);
      if (state === 'closed') return undefined;
      if (state === 'open') return `a circle at ${this.label(key)}`;
      if (!this.nodes.has(key)) return `nothing is called ${this.label(key)}`;
      done.set(key, 'open');
      for (const next of this.edges.get(key) ?? []) {
        const why = visit(next);
        if (why !== undefined) return why;
      }
      done.set(key, 'closed');
      order.push(this.nodes.get(key)!);
      return undefined;
    };
    for (const key of this.nodes.keys()) {
      const why = visit(key);
      if (why !== undefined) return bad(why);
    }
    return good(order);
  }
}

class Plan extends Graph<TaskId, Task> {
  static of(tasks: Iterable<Task>): Plan {
    const plan = new Plan();
    for (const task of tasks) plan.add(task.id, task, task.needs);
    return plan;
  }

  override label(key: TaskId): string {
    return `'${key}'`;
  }

  starts(order: readonly Task[]): Map<TaskId, Minutes> {
    const ends = new Map<TaskId, number>();
    const begin = new Map<TaskId, Minutes>();
    for (const task of order) {
      const at = Math.max(0, ...task.needs.map((need) => ends.get(need) ?? 0));
      begin.set(task.id, minutes(at));
      ends.set(task.id, at + task.takes);
    }
    return begin;
  }
}

function total<T, K extends keyof T>(items: readonly T[], key: K & (T[K] extends number ? K : never)): number {
  return items.reduce((sum, item) => sum + (item[key] as unknown as number), 0);
}

function groupBy<T, K>(items: Iterable<T>, keysOf: (item: T) => Iterable<K>): Map<K, T[]> {
  const groups = new Map<K, T[]>();
  for (const item of items) {
    for (const key of keysOf(item)) {
      const group = groups.get(key) ?? [];
      group.push(item);
      groups.set(key, group);
    }
  }
  return groups;
}

const clock = (at: Minutes): string => {
  const hours: string = String(Math.floor(at / 60)).padStart(2, '0');
  return `${hours}:${String(at % 60).padStart(2, '0')}`;
};

const WIDTHS = { id: 6, title: 22, takes: 5, begins: 7 } as const satisfies Record<string, number>;
type Column = keyof typeof WIDTHS;

function row(cells: Record<Column, string>): string {
  const padded = (Object.keys(WIDTHS) as Column[]).map((name) => cells[name].padEnd(WIDTHS[name]));
  return padded.join(' ').trimEnd();
}

const tasks: Task[] = [];
const wrong: string[] = [];
for (const line of linesOf(SOURCE)) {
  switch (line.kind) {
    case 'task':
      tasks.push(line.task);
      break;
    case 'comment':
      console.log(`fields: ${line.text}`);
      break;
    case 'wrong':
      wrong.push(`line ${line.number}: ${line.why}`);
      break;
  }
}

const plan: Plan = Plan.of(tasks);
const order = plan.ordered();
if (order.ok) {
  const begins = plan.starts(order.value);
  console.log(row({ id: 'id', title: 'title', takes: 'takes', begins: 'begins' }));
  for (const task of order.value) {
    const at = begins.get(task.id) as Minutes;
    console.log(row({ id: task.id, title: task.title, takes: String(task.takes), begins: clock(at) }));
  }
  console.log(`${plan.size} tasks, ${clock(minutes(total(order.value, 'takes')))} of work`);
  for (const [tag, group] of groupBy(order.value, (task) => task.tags ?? [])) {
    console.log(`${tag}: ${group.map((task) => task.id).join(', ')}`);
  }
} else console.log(order.why);
console.log(wrong.join('\n'));

const circle = Plan.of([{ id: taskId('a'), title: 'a', takes: minutes(1), needs: [taskId('a')] }]).ordered();
console.log(JSON.stringify(circle));
