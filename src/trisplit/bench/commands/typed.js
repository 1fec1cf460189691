// typed.ts without its types.
const minutes = (n)=>n;
const taskId = (text)=>text;
const good = (value)=>({
        ok: true,
        value
    });
const bad = (why)=>({
        ok: false,
        why
    });
const SOURCE = `
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
function parseMinutes(text) {
    const value = Number(text);
    return Number.isInteger(value) && value > 0 ? good(minutes(value)) : bad(`${text} is no number of minutes`);
}
function parseLine(text, number) {
    if (text.startsWith('#')) return {
        kind: 'comment',
        text: text.slice(1).trim()
    };
    const fields = text.split(';').map((field)=>field.trim());
    if (fields.length !== 5) return {
        kind: 'wrong',
        number,
        why: `${fields.length} fields`
    };
    const [id, title, takes, needs, tags] = fields;
    const parsed = parseMinutes(takes);
    if (!parsed.ok) return {
        kind: 'wrong',
        number,
        why: parsed.why
    };
    const task = {
        id: taskId(id),
        title,
        takes: parsed.value,
        needs: needs === '' ? [] : needs.split(/\s+/).map(taskId),
        tags: new Set(tags.split(',').map((tag)=>tag.trim()))
    };
    return {
        kind: 'task',
        task
    };
}
function* linesOf(source) {
    let number = 0;
    for (const text of source.split('\n')){
        number += 1;
        if (text.trim() !== '') yield parseLine(text, number);
    }
}
class Graph {
    nodes = new Map();
    edges = new Map();
    add(key, value, to) {
        this.nodes.set(key, value);
        this.edges.set(key, to);
        return this;
    }
    get size() {
        return this.nodes.size;
    }
    ordered() {
        const done = new Map();
        const order = [];
        const visit = (key)=>{
            const state = done.get(key);
            if (state === 'closed') return undefined;
            if (state === 'open') return `a circle at ${this.label(key)}`;
            if (!this.nodes.has(key)) return `nothing is called ${this.label(key)}`;
            done.set(key, 'open');
            for (const next of this.edges.get(key) ?? []){
                const why = visit(next);
                if (why !== undefined) return why;
            }
            done.set(key, 'closed');
            order.push(this.nodes.get(key));
            return undefined;
        };
        for (const key of this.nodes.keys()){
            const why = visit(key);
            if (why !== undefined) return bad(why);
        }
        return good(order);
    }
}
class Plan extends Graph {
    static of(tasks) {
        const plan = new Plan();
        for (const task of tasks)plan.add(task.id, task, task.needs);
        return plan;
    }
    label(key) {
        return `'${key}'`;
    }
    starts(order) {
        const ends = new Map();
        const begin = new Map();
        for (const task of order){
            const at = Math.max(0, ...task.needs.map((need)=>ends.get(need) ?? 0));
            begin.set(task.id, minutes(at));
            ends.set(task.id, at + task.takes);
        }
        return begin;
    }
}
function total(items, key) {
    return items.reduce((sum, item)=>sum + item[key], 0);
}
function groupBy(items, keysOf) {
    const groups = new Map();
    for (const item of items){
        for (const key of keysOf(item)){
            const group = groups.get(key) ?? [];
            group.push(item);
            groups.set(key, group);
        }
    }
    return groups;
}
const clock = (at)=>{
    const hours = String(Math.floor(at / 60)).padStart(2, '0');
    return `${hours}:${String(at % 60).padStart(2, '0')}`;
};
const WIDTHS = {
    id: 6,
    title: 22,
    takes: 5,
    begins: 7
};
function row(cells) {
    const padded = Object.keys(WIDTHS).map((name)=>cells[name].padEnd(WIDTHS[name]));
    return padded.join(' ').trimEnd();
}
const tasks = [];
const wrong = [];
for (const line of linesOf(SOURCE)){
    switch(line.kind){
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
const plan = Plan.of(tasks);
const order = plan.ordered();
if (order.ok) {
    const begins = plan.starts(order.value);
    console.log(row({
        id: 'id',
        title: 'title',
        takes: 'takes',
        begins: 'begins'
    }));
    for (const task of order.value){
        const at = begins.get(task.id);
        console.log(row({
            id: task.id,
            title: task.title,
            takes: String(task.takes),
            begins: clock(at)
        }));
    }
    console.log(`${plan.size} tasks, ${clock(minutes(total(order.value, 'takes')))} of work`);
    for (const [tag, group] of groupBy(order.value, (task)=>task.tags ?? [])){
        console.log(`${tag}: ${group.map((task)=>task.id).join(', ')}`);
    }
} else console.log(order.why);
console.log(wrong.join('\n'));
const circle = Plan.of([
    {
        id: taskId('a'),
        title: 'a',
        takes: minutes(1),
        needs: [
            taskId('a')
        ]
    }
]).ordered();
console.log(JSON.stringify(circle));
